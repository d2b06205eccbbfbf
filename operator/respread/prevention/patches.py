"""The patches to make, in their order, and what is assumed while they are in progress."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum
from math import inf
from typing import Final

import msgspec

from respread.cluster.pod import Pod
from respread.prevention.ranks import HeldCost, cost_of


class Purpose(Enum):
    """Why a pod's cost is patched."""

    RANK = "Rank"
    """The pod has no cost."""
    RERANK = "Rerank"
    """Another cost serves the spread better."""
    REMOVE = "Remove"
    """No policy asks for the cost any more."""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a pod's deletion cost."""

    pod: Pod
    cost: int | None
    """None: remove it."""
    before: HeldCost | None
    """The cost that the pod is assumed to have."""
    purpose: Purpose
    policy: str
    """The name of the policy that asks for it; empty if the pod has lost its policy."""
    replica_set: str
    """The UID of the pod's controller; empty if its controller does not use costs."""
    replacing: bool = False
    """Whether a cost that somebody else wrote is to be replaced."""
    unseen: bool = False
    """Whether an earlier patch of the pod was made that the watch never showed, so that `before` may be outdated."""


class PatchQueue:
    """Patches that are not sent yet, one per pod, the oldest first, reranking last."""

    __slots__ = ("_of_replica_set", "_reranks", "_urgent")

    def __init__(self) -> None:
        # Not plain dicts: to find their first entry, they examine all that were ever deleted before it.
        self._urgent: OrderedDict[str, Patch] = OrderedDict()
        self._reranks: OrderedDict[str, Patch] = OrderedDict()
        self._of_replica_set: dict[str, tuple[Patch, ...]] = {}

    def __len__(self) -> int:
        """The number of patches."""
        return len(self._urgent) + len(self._reranks)

    def of(self, replica_set: str) -> tuple[Patch, ...]:
        """Return the patches of a ReplicaSet."""
        return tuple(
            patch
            for patch in self._of_replica_set.get(replica_set, ())
            if self._lane(patch).get(patch.pod.uid) is patch
        )

    def replace(self, replica_set: str, patches: Iterable[Patch]) -> None:
        """Replace the patches of a ReplicaSet. Those for the same pods keep their position."""
        wanted = tuple(patches)
        pods = {patch.pod.uid: patch for patch in wanted}
        for before in self._of_replica_set.pop(replica_set, ()):
            lane = self._lane(before)
            after = pods.get(before.pod.uid)
            if after is None or self._lane(after) is not lane:
                lane.pop(before.pod.uid, None)
        for patch in wanted:
            self._lane(patch)[patch.pod.uid] = patch
        if wanted:
            self._of_replica_set[replica_set] = wanted

    def urgent(self) -> Patch | None:
        """Return the oldest patch that is not a reranking. It stays in the queue."""
        return next(iter(self._urgent.values()), None)

    def rerank(self) -> Patch | None:
        """Return the oldest reranking. It stays in the queue."""
        return next(iter(self._reranks.values()), None)

    def drop(self, patch: Patch) -> None:
        """Remove a patch."""
        self._lane(patch).pop(patch.pod.uid, None)

    def _lane(self, patch: Patch) -> OrderedDict[str, Patch]:
        return self._reranks if patch.purpose is Purpose.RERANK else self._urgent


LAPSED_SECONDS: Final = 3600.0
"""How long Respread remembers that a patch never became visible."""


class _Assumed(msgspec.Struct, frozen=True):
    cost: HeldCost | None
    until: float
    lapsed: bool = False
    """Whether that time is over. Then the watch is trusted again, but verified."""


class Assumptions:
    """Costs that pods are assumed to have, although the watch does not show them (yet)."""

    __slots__ = ("_costs",)

    def __init__(self) -> None:
        self._costs: dict[str, _Assumed] = {}

    def cost_of(self, pod: Pod) -> HeldCost | None:
        """Return the cost that a pod is assumed to have."""
        assumed = self._costs.get(pod.uid)
        return cost_of(pod) if assumed is None or assumed.lapsed else assumed.cost

    def cost_to_respect(self, pod: Pod) -> HeldCost | None:
        """Return the same if Respread may replace costs of others: none where the watch shows such a cost."""
        cost = self.cost_of(pod)
        assumed = self._costs.get(pod.uid)
        replaceable = cost is not None and not cost.ours and (assumed is None or assumed.lapsed)
        return None if replaceable else cost

    def may_have_ours(self, pod: Pod) -> bool:
        """Return whether a pod has a cost of Respread, or may have one that the watch has not shown for too long."""
        assumed = self._costs.get(pod.uid)
        cost = cost_of(pod) if assumed is None else assumed.cost
        return cost is not None and cost.ours

    def unseen(self, pod: Pod) -> bool:
        """Return whether the watch has not shown the assumed cost of a pod for too long."""
        assumed = self._costs.get(pod.uid)
        return assumed is not None and assumed.lapsed

    def assume(self, pod: Pod, cost: HeldCost | None, until: float = inf) -> None:
        """Assume a cost for a pod until some time on the clock."""
        self._costs[pod.uid] = _Assumed(cost, until)

    def forget(self, pod: Pod) -> None:
        """Trust the watch."""
        self._costs.pop(pod.uid, None)

    def drop_confirmed(self, pods: Iterable[Pod], now: float) -> None:
        """Drop assumptions that the watch confirms, or has not confirmed for too long."""
        if not self._costs:
            return
        for pod in pods:
            assumed = self._costs.get(pod.uid)
            if assumed is None or assumed.until == inf:
                continue
            if assumed.cost == cost_of(pod):
                del self._costs[pod.uid]
            elif assumed.until <= now and not assumed.lapsed:
                self._costs[pod.uid] = msgspec.structs.replace(assumed, lapsed=True)

    def next_end(self, pods: Iterable[Pod]) -> float:
        """Return when the first assumption about any of these pods ends; infinity if none does."""
        if not self._costs:
            return inf
        found = (assumed for pod in pods if (assumed := self._costs.get(pod.uid)) is not None)
        return min((assumed.until for assumed in found if not assumed.lapsed), default=inf)

    def under_way(self, pods: Iterable[Pod]) -> bool:
        """Return whether the patch of any of these pods has no answer yet."""
        return bool(self._costs) and any(
            (assumed := self._costs.get(pod.uid)) is not None and assumed.until == inf for pod in pods
        )

    def expire(self, now: float) -> None:
        """Drop assumptions that were not confirmed for very long, about pods that may be gone."""
        self._costs = {uid: assumed for uid, assumed in self._costs.items() if assumed.until + LAPSED_SECONDS > now}
