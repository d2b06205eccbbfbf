"""What a user can do about a constraint that the plan leaves violated, in a few words for a row of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from respread.api.conditions import PASSING_REASONS
from respread.api.reasons import Reason

_PASSES: Final = "nothing to do: it ends by itself"
_REMEDIES: Final[Mapping[Reason, str]] = {
    Reason.BARE_POD: "let a Deployment or StatefulSet own the pods",
    Reason.CONFLICTING_CONSTRAINTS: "raise the maxSkew of one of them, or add nodes",
    Reason.DAEMON_SET_POD: "select no pods of a DaemonSet",
    Reason.DOMAIN_HAS_NO_NODE: "add a node in {named}",
    Reason.DRY_RUN: "set mode: Enforce in the policy",
    Reason.EVICTION_REFUSED: "let the webhook or role allow evictions",
    Reason.FINISHED_POD: "delete the finished pods",
    Reason.GROUP_TOO_LARGE: "let the labelSelector match one workload only",
    Reason.HELD_BY_BUDGET: "raise maxUnavailable of PodDisruptionBudget {named}",
    Reason.INVALID_POLICY: "correct the policy",
    Reason.LOCAL_STORAGE: "set victims.localStorage: Evict, if the data may go",
    Reason.MIRROR_POD: "move the manifest to another node",
    Reason.NO_BUDGET: "create a PodDisruptionBudget for the pods",
    Reason.NO_FEASIBLE_NODE: "uncordon, free or add nodes in {named}",
    Reason.NOT_SELECTED: "select it in a policy",
    Reason.OVERLAPPING_BUDGETS: "keep one PodDisruptionBudget for the pods",
    Reason.PAUSED: "make the new pods Ready",
    Reason.PERSISTENT_VOLUME_CLAIM: "set victims.persistentVolumeClaims: Evict",
    Reason.PODS_NOT_READY: "make its pods Ready",
    Reason.PRIORITY_TOO_HIGH: "raise victims.priorityThreshold in the policy",
    Reason.PROTECTED_POD: "remove the annotation {named}",
    Reason.REPLACEMENT_REFUSED: "raise the ResourceQuota or LimitRange",
    Reason.REPLACEMENT_WOULD_WAIT: "set podManagementPolicy: Parallel",
    Reason.TEMPLATE_DIFFERS: "kubectl rollout restart the workload",
    Reason.TOO_FEW_DOMAINS: "add nodes in more domains, or lower minDomains",
    Reason.TOO_FEW_REPLICAS: "add replicas, or lower victims.minReplicas",
    Reason.UNKNOWN_OWNER: "add its kind to victims.trustedControllers",
    Reason.UNKNOWN_REPLACEMENT: "{named}",
    Reason.UNREAD_OBJECT: "correct the object that the message names",
}
_NAMES: Final[Mapping[Reason, re.Pattern[str]]] = {
    Reason.DOMAIN_HAS_NO_NODE: re.compile(r"^(.+?) ha(?:s|ve) no node"),
    Reason.HELD_BY_BUDGET: re.compile(r"PodDisruptionBudget (\S+) allows no disruption: .*raise maxUnavailable"),
    Reason.NO_FEASIBLE_NODE: re.compile(r"^(.+?) holds? the fewest"),
    Reason.PROTECTED_POD: re.compile(r"annotation ([^\s:,;]+)"),
    Reason.UNKNOWN_REPLACEMENT: re.compile(r"(give them the same constraint, or narrow its labelSelector)$"),
}
"""Where messages name what a remedy is about."""
_WITHOUT_NAME: Final[Mapping[Reason, str]] = {
    Reason.DOMAIN_HAS_NO_NODE: "add a node there",
    Reason.HELD_BY_BUDGET: "make more of the budget's pods Ready",
    Reason.NO_FEASIBLE_NODE: "uncordon, free or add nodes",
    Reason.PROTECTED_POD: "remove what protects the pods",
    Reason.UNKNOWN_REPLACEMENT: "tell Respread of its scheduler or controller",
}
"""Remedies if the message names nothing, because something else holds the pods."""


def remedy_of(reason: Reason, message: str) -> str:
    """Return what a user can do about a reason, in at most some 80 characters, without a full stop.

    Args:
        reason: why a constraint stays violated.
        message: the sentence that belongs to it, which names the objects.
    """
    remedy = _REMEDIES.get(reason, _PASSES if reason in PASSING_REASONS else "")
    if (pattern := _NAMES.get(reason)) is None:
        return remedy
    found = pattern.search(message)
    return _WITHOUT_NAME[reason] if found is None else remedy.format(named=found[1])
