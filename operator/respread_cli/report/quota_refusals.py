"""Which ResourceQuotas refuse pods, as the API server decides: by their status, their scopes, and the pods to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from respread.cluster.incremental import changed_keys
from respread.cluster.objects import ResourceQuota
from respread.cluster.pod import Pod
from respread.cluster.quantity import shown
from respread.cluster.state import ClusterSnapshot
from respread.planning.placement import is_replaced_when_gone
from respread.planning.plan import Move


def quota_refusals(before: ClusterSnapshot, after: ClusterSnapshot, namespace: str | None = None) -> tuple[str, ...]:
    """Return which quotas have no room for all pods of a hypothetical cluster, a sentence each, without a full stop.

    A pod counts until it has stopped, and its controller replaces it before, except for a StatefulSet. Quotas are those
    of the cluster before, as far as they are known. A namespace of None is all.
    """
    if not before.resource_quotas:
        return ()
    gone: dict[str, list[Pod]] = {}
    new: dict[str, list[Pod]] = {}
    for key in changed_keys(before.pods, after.pods):
        was, now = before.pods.get(key), after.pods.get(key)
        if was is None or now is None or was.uid != now.uid:
            for pod, found in ((was, gone), (now, new)):
                if pod is not None and not pod.finished:
                    found.setdefault(key.namespace, []).append(pod)
    return tuple(
        said
        for name in sorted(new)
        if namespace in (None, name)
        for quota in _quotas_of(before, name)
        for said in _refusal(quota, gone.get(name, []), new[name])
    )


def move_refusals(snapshot: ClusterSnapshot, moves: Iterable[Move]) -> Iterator[str]:
    """Yield which quotas would refuse the replacements of moves, so that Respread does not make these, a sentence each.

    The snapshot has quotas as far as they are known.
    """
    refused: Counter[tuple[str, str]] = Counter()
    for move in moves if snapshot.resource_quotas else ():
        freed = [move.pod] if is_replaced_when_gone(move.pod) else []
        for quota in _quotas_of(snapshot, move.pod.namespace):
            refused[quota.namespace, quota.name] += next(_exceeded(quota, freed, [move.pod]), None) is not None
    for (namespace, name), number in sorted((+refused).items()):
        yield (
            f"ResourceQuota {name} of namespace {namespace} would refuse the replacements of {number:,} of the planned "
            "evictions: an evicted pod counts until it is gone. Respread leaves these pods alone until there is room."
        )


def _quotas_of(snapshot: ClusterSnapshot, namespace: str) -> list[ResourceQuota]:
    return [quota for _, quota in sorted(snapshot.resource_quotas.get(namespace, {}).items())]


def _refusal(quota: ResourceQuota, gone: list[Pod], new: list[Pod]) -> Iterator[str]:
    names = {pod.name for pod in new if is_replaced_when_gone(pod)}
    freed_first = [pod for pod in gone if pod.name in names]
    for freed, what in (
        (gone, "some of the new pods"),
        (freed_first, "some replacements until the old pods have stopped"),
    ):
        for resource, takes in _exceeded(quota, freed, new):
            yield (
                f"ResourceQuota {quota.name} of namespace {quota.namespace} refuses {what}: they take {shown(takes)} "
                f"of {resource}, and {shown(quota.used.get(resource, 0))} of {shown(quota.hard[resource])} are used"
            )
            return


def _exceeded(quota: ResourceQuota, freed: Iterable[Pod], new: Iterable[Pod]) -> Iterator[tuple[str, int]]:
    """Yield the resources of which a quota has too little for new pods, and how much these take."""
    takes, returned = _usage(quota, new), _usage(quota, freed)
    for resource in sorted(quota.hard):
        if takes[resource] and takes[resource] > quota.left(resource, returned[resource]):
            yield resource, takes[resource]


def _usage(quota: ResourceQuota, pods: Iterable[Pod]) -> Counter[str]:
    used: Counter[str] = Counter()
    for pod in pods:
        if quota.counts(pod.spec):
            used.update(pod.spec.quota_usage)
    return used
