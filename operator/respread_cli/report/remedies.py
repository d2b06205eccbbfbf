"""What a user can do about a constraint that the plan leaves violated, in a few words for a row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from respread.api.conditions import PASSING_REASONS
from respread.api.reasons import Reason
from respread.planning.held import Held

_PASSES: Final = "nothing to do: it ends by itself"
_REMEDIES: Final[Mapping[Reason, str]] = {
    Reason.BARE_POD: "let a Deployment or StatefulSet own the pods",
    Reason.CONFLICTING_CONSTRAINTS: "raise the maxSkew of one of them, or add nodes",
    Reason.DAEMON_SET_POD: "select no pods of a DaemonSet",
    Reason.DOMAIN_HAS_NO_NODE: "add a node there",
    Reason.DRY_RUN: "set mode: Enforce in the policy",
    Reason.EVICTION_REFUSED: "let the webhook or role allow evictions",
    Reason.FINISHED_POD: "delete the finished pods",
    Reason.GROUP_TOO_LARGE: "let the labelSelector match one workload only",
    Reason.HELD_BY_BUDGET: "make more of the budget's pods Ready",
    Reason.INVALID_POLICY: "correct the policy",
    Reason.LOCAL_STORAGE: "set victims.localStorage: Evict, if the data may go",
    Reason.MIRROR_POD: "move the manifest to another node",
    Reason.NO_BUDGET: "create a PodDisruptionBudget for the pods",
    Reason.NO_FEASIBLE_NODE: "uncordon, free or add nodes",
    Reason.NOT_SELECTED: "select it in a policy",
    Reason.OVERLAPPING_BUDGETS: "keep one PodDisruptionBudget for the pods",
    Reason.PAUSED: "make the new pods Ready",
    Reason.PERSISTENT_VOLUME_CLAIM: "set victims.persistentVolumeClaims: Evict",
    Reason.PODS_NOT_READY: "make its pods Ready",
    Reason.PRIORITY_TOO_HIGH: "raise victims.priorityThreshold in the policy",
    Reason.PROTECTED_POD: "remove what protects the pods",
    Reason.REPLACEMENT_REFUSED: "raise the ResourceQuota or LimitRange",
    Reason.REPLACEMENT_WOULD_WAIT: "set podManagementPolicy: Parallel",
    Reason.TEMPLATE_DIFFERS: "kubectl rollout restart the workload",
    Reason.TOO_FEW_DOMAINS: "add nodes in more domains, or lower minDomains",
    Reason.TOO_FEW_REPLICAS: "add replicas, or lower victims.minReplicas",
    Reason.UNKNOWN_OWNER: "add its kind to victims.trustedControllers",
    Reason.UNKNOWN_REPLACEMENT: "tell Respread of its scheduler or controller",
    Reason.UNREAD_OBJECT: "correct the object that the message names",
}
_BY_NAME: Final[Mapping[Reason, str]] = {
    Reason.DOMAIN_HAS_NO_NODE: "add a node in {}",
    Reason.HELD_BY_BUDGET: "raise maxUnavailable of PodDisruptionBudget {}",
    Reason.NO_FEASIBLE_NODE: "uncordon, free or add nodes in {}",
    Reason.PROTECTED_POD: "remove the annotation {}",
    Reason.UNKNOWN_REPLACEMENT: "{}",
}
"""Remedies where it is known what would have to be changed."""


def remedy_of(held: Held) -> str:
    """Return what a user can do about what holds a constraint, in at most some 80 characters, without a full stop."""
    if held.named and (remedy := _BY_NAME.get(held.reason)) is not None:
        return remedy.format(held.named)
    return _REMEDIES.get(held.reason, _PASSES if held.reason in PASSING_REASONS else "")
