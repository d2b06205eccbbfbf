"""Which ResourceQuotas refuse replacements while the pods that they replace still count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from respread.cluster.pod import Pod
from respread.cluster.quantity import NANO_PER_UNIT
from respread.cluster.requests import usage_of_requests
from respread.cluster.state import ClusterSnapshot
from respread.planning.placement import is_replaced_when_gone
from respread_cli.read.quotas import Quota
from respread_cli.report.what_if import stays_on_its_node

_CPU_PER_UNIT: Final = 1000


def quota_refusals(
    before: ClusterSnapshot, nodes: Collection[str], quotas: Iterable[Quota], namespace: str | None = None
) -> tuple[str, ...]:
    """Return which quotas have no room for all replacements at once, a sentence each, without a full stop.

    A pod counts until it has stopped, and its controller replaces it before, except for a StatefulSet. Quotas with
    scopes, and limits, are not known.

    Args:
        before: the cluster.
        nodes: the nodes whose pods are replaced.
        quotas: all quotas.
        namespace: tell of this one only; None is all.
    """
    wanted: dict[str, Counter[str]] = {}
    for name in nodes:
        for pod in before.pods_by_node.get(name, {}).values():
            if namespace in (None, pod.namespace) and _is_replaced_at_once(pod):
                wanted.setdefault(pod.namespace, Counter()).update(_usage(pod))
    return tuple(
        f"ResourceQuota {quota.name} of namespace {quota.namespace} refuses some replacements until the lost pods have "
        f"stopped: they take {_shown(takes)} of {resource}, and {_shown(used)} of {_shown(hard)} are used"
        for quota in sorted(quotas, key=lambda each: (each.namespace, each.name))
        if quota.namespace in wanted and not quota.scoped
        for resource, hard, used, takes in _exceeded(quota, wanted[quota.namespace])
    )


def _exceeded(quota: Quota, wanted: Counter[str]) -> Iterator[tuple[str, int, int, int]]:
    for resource, hard in sorted(quota.hard.items()):
        used = quota.used.get(resource, 0)
        if wanted[resource] and used + wanted[resource] > hard:
            yield resource, hard, used, wanted[resource]
            return


def _is_replaced_at_once(pod: Pod) -> bool:
    alive = not pod.finished and not pod.terminating and pod.controller is not None
    return alive and not stays_on_its_node(pod) and not is_replaced_when_gone(pod)


def _usage(pod: Pod) -> dict[str, int]:
    """Return what a pod like this uses of quotas, in billionths of a unit, without its limits."""
    return usage_of_requests(
        {
            name: amount * NANO_PER_UNIT // (_CPU_PER_UNIT if name == "cpu" else 1)
            for name, amount in pod.spec.requests.items()
        }
    )


def _shown(nano: int) -> str:
    return f"{nano / NANO_PER_UNIT:.3f}".rstrip("0").rstrip(".")
