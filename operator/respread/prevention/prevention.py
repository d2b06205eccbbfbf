"""Decides what to do about pod deletion costs, from one snapshot to the next. No I/O, no clock.

The costs are on the pods, so a restart loses nothing: ranking continues from the costs that Respread owns. Only patches
that were sent just now and are not visible yet must be remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Final, NamedTuple, TypeAlias

import msgspec

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.contests import Contests
from respread.prevention.deletion_costs import Assumptions, Patch, PatchQueue, Purpose
from respread.prevention.ranks import (
    Avoided,
    Costs,
    HeldCost,
    NoRoomError,
    Roles,
    avoided_between,
    rank_new,
    rerank,
    roles_of,
)
from respread.prevention.replica_set import CostSelection, ReplicaSetIndex, ReplicaSetPods, Wish, select
from respread.spread.index import Spread
from respread.timing import Allowance, ClockReading

PATCHES_PER_SECOND: Final = 50.0
PATCHES_AT_ONCE: Final = 500
"""The largest burst, so that a starting Deployment is ranked at once."""
RERANKED_PER_MINUTE: Final = 300.0
"""Pods whose existing cost changes, in the whole cluster."""
RERANK_INTERVAL_SECONDS: Final = 60.0
"""The minimum time between two rerankings of a ReplicaSet."""
REST_SECONDS: Final = 5.0
"""A ReplicaSet is reranked after it has been unchanged this long with all of its pods Ready."""
UNREADY_REST_SECONDS: Final = 300.0
"""The same if some pods are not Ready. Kubernetes evicts pods from an unreachable node after this time
(`tolerationSeconds` of the taints that DefaultTolerationSeconds tolerates)."""
GATHER_SECONDS: Final = 1.0
"""New pods wait this long for other pods of their ReplicaSet without a node, so that they are ranked better, and only
once."""


SEEN_WITHIN_SECONDS: Final = 60.0
"""If the watch does not show a patch within this time, it may not have been applied, and the pod is read before the
next patch."""
_EXPIRY_SECONDS: Final = 10.0


class View(NamedTuple):
    """The cluster at one moment."""

    snapshot: ClusterSnapshot
    spread: Spread
    policies: PolicyIndex
    """The same object while no policy changes."""
    leaving: Collection[str] = frozenset()
    """UIDs of pods that are being evicted."""


class Answered(NamedTuple):
    """The relevant outcome of a patch."""

    cost: HeldCost | None
    """The cost that the pod is assumed to have now, unless the watch shows another within `SEEN_WITHIN_SECONDS`."""
    written: bool = False
    """Whether the API server has confirmed that the patch was applied."""


_Signature: TypeAlias = tuple[object, ...]


class _Course(msgspec.Struct):
    """What must be remembered about a ReplicaSet."""

    signature: _Signature
    since: float
    """When it last changed in a relevant way."""
    selection: CostSelection
    new_since: float | None = None
    """Since when it has pods without a cost."""
    may_rerank: float = -inf
    """When it may be reranked next."""
    at_rest: ReplicaSetPods | None = None
    """Its state when it was last at rest."""


class CostPlanner:
    """Decides which costs are written."""

    def __init__(self, now: float, contests: Contests | None = None) -> None:
        self.contests = Contests() if contests is None else contests
        """The ReplicaSets whose costs others write too."""
        self._index = ReplicaSetIndex()
        self._courses: dict[str, _Course] = {}
        self._due: dict[str, float] = {}
        """When to examine a ReplicaSet again, even if nothing changes."""
        self._unexamined: dict[str, None] = {}
        self._queue = PatchQueue()
        self._assumptions = Assumptions()
        self._resting: dict[str, float] = {}
        """Until when nothing is patched in a namespace."""
        self._view: View | None = None
        self._allowance = Allowance.full(PATCHES_PER_SECOND, PATCHES_AT_ONCE, now)
        self._rerank_allowance = Allowance.full(RERANKED_PER_MINUTE / 60, RERANKED_PER_MINUTE, now)
        self._expire_at = now

    @property
    def waiting(self) -> int:
        """The number of patches to make."""
        return len(self._queue)

    def observe(self, view: View) -> None:
        """Take over the current state of the cluster. `examine` then decides what to do."""
        before, self._view = self._view, view
        changes = self._index.update(view.snapshot, view.spread)
        for uid in changes.gone:
            self._forget(uid)
        if (
            before is None
            or before.policies is not view.policies
            or before.snapshot.namespaces is not view.snapshot.namespaces
        ):
            self._unexamined.update(dict.fromkeys(self._index.by_uid))
        self._unexamined.update((each.controller.uid, None) for each in changes.changed)

    def examine(self, moment: ClockReading, has_time: Callable[[], bool] = lambda: True) -> list[Avoided]:
        """Decide what to patch, for everything that has changed or is due.

        The scale-downs that are complete are returned. `has_time` is called after each ReplicaSet. What remains is
        examined the next time.
        """
        if (view := self._view) is None:
            return []
        now = moment.now
        self._unexamined.update((uid, None) for uid, due in self._due.items() if due <= now)
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRY_SECONDS
            self._assumptions.expire(now)
        avoided = []
        while self._unexamined:
            uid = next(iter(self._unexamined))
            del self._unexamined[uid]
            found = self._examine(self._index.by_uid[uid], view, moment)
            if found is not None:
                avoided.append(found)
            if not has_time():
                break
        self._queue.replace("", self._strays(now))
        return avoided

    def next_examination(self) -> float:
        """Return when something becomes due without a change, on the clock; infinity if nothing does."""
        return -inf if self._unexamined else min(self._due.values(), default=inf)

    def take(self, now: float) -> Patch | None:
        """Return the next patch to send, if one may be sent now. From then on it is assumed to be made."""
        if self._allowance.left(now) < 1:
            return None
        patch = self._next(self._queue.urgent, now)
        if patch is None:
            patch = self._next(self._queue.rerank, now)
            if patch is None or self._rerank_allowance.left(now) < 1:
                return None
            self._rerank_allowance = self._rerank_allowance.used(1, now)
        self._allowance = self._allowance.used(1, now)
        self._queue.drop(patch)
        self._assumptions.assume(patch.pod, None if patch.cost is None else HeldCost(patch.cost, ours=True))
        return patch

    def _next(self, first: Callable[[], Patch | None], now: float) -> Patch | None:
        """Return the first patch of a part of the queue. Those of namespaces where nothing is patched now leave it."""
        while (patch := first()) is not None and self._resting.get(patch.pod.namespace, -inf) > now:
            self._queue.drop(patch)
            if patch.replica_set in self._index.by_uid:
                self._unexamined[patch.replica_set] = None
        return patch

    def wait_seconds(self, now: float) -> float:
        """Return how long until the next patch may be sent; infinity if there is none."""
        wait = self._allowance.wait_seconds(1, now)
        if self._queue.urgent() is not None:
            return wait
        if self._queue.rerank() is not None:
            return max(wait, self._rerank_allowance.wait_seconds(1, now))
        return inf

    def answered(self, patch: Patch, answer: Answered | None, now: float) -> None:
        """Process the outcome of a patch. None: it was not made, and is decided again."""
        if answer is None:
            self._assumptions.forget(patch.pod)
        else:
            self._assumptions.assume(patch.pod, answer.cost, now + SEEN_WITHIN_SECONDS)
            if answer.written and patch.purpose is Purpose.RANK:
                self.contests.written(patch.replica_set, patch.pod)
        if patch.replica_set in self._index.by_uid:
            self._unexamined[patch.replica_set] = None

    def rest(self, namespace: str, until: float) -> None:
        """Patch nothing in a namespace for some time."""
        self._resting[namespace] = until

    # One ReplicaSet

    def _examine(self, replica_set: ReplicaSetPods, view: View, moment: ClockReading) -> Avoided | None:
        uid, now = replica_set.controller.uid, moment.now
        self._due.pop(uid, None)
        self._assumptions.drop_confirmed(replica_set.pods, now)
        course = self._course(replica_set, view, now)
        resting_until = self._resting.get(replica_set.namespace, -inf)
        if resting_until > now:
            self._queue.replace(uid, ())
            self._look_again(uid, resting_until)
            return None
        self._look_again(uid, self._assumptions.next_end(replica_set.pods))
        if self._gives_way(replica_set, course, moment):
            self._queue.replace(uid, ())
            return None
        if view.leaving:
            staying = tuple(pod for pod in replica_set.pods if pod.uid not in view.leaving)
            if len(staying) < len(replica_set.pods):
                replica_set = msgspec.structs.replace(replica_set, pods=staying, terminating=True)
                self._look_again(uid, now + REST_SECONDS)
        match course.selection.wish:
            case Wish.PROTECT:
                return self._protect(replica_set, course, moment)
            case Wish.REMOVE:
                self._queue.replace(uid, self._removals(replica_set, course.selection.policy))
            case Wish.LEAVE:
                self._queue.replace(uid, ())
        return None

    def _gives_way(self, replica_set: ReplicaSetPods, course: _Course, moment: ClockReading) -> bool:
        """Return whether nothing is written for a ReplicaSet now because somebody else writes its costs too."""
        uid = replica_set.controller.uid
        if course.selection.wish is not Wish.PROTECT:
            self.contests.forget(uid)
            return False
        contest = self.contests.observe(
            replica_set, self._assumptions.may_have_ours, course.selection, moment.now, moment.time_of_day
        )
        if contest is None:
            return False
        waits = moment.now < contest.until
        self._look_again(uid, contest.until if waits else contest.forgotten_at)
        return waits

    def _course(self, replica_set: ReplicaSetPods, view: View, now: float) -> _Course:
        signature: _Signature = (
            replica_set.terminating,
            len(replica_set.siblings),
            *((pod.uid, pod.node_name, pod.ready) for pod in replica_set.pods),
        )
        selection = select(replica_set, view.policies, view.snapshot)
        course = self._courses.get(replica_set.controller.uid)
        if course is None:
            course = self._courses[replica_set.controller.uid] = _Course(signature, now, selection)
        elif course.signature != signature or course.selection != selection:
            course.signature, course.since, course.selection = signature, now, selection
            if any(patch.purpose is Purpose.RERANK for patch in self._queue.of(replica_set.controller.uid)):
                self._queue.replace(replica_set.controller.uid, ())  # It was for the earlier state of the ReplicaSet.
        return course

    def _protect(self, replica_set: ReplicaSetPods, course: _Course, moment: ClockReading) -> Avoided | None:
        uid = replica_set.controller.uid
        if len(replica_set.pods) == 1:
            # Whatever is deleted, nothing remains to be spread.
            self._queue.replace(uid, ())
            return None
        cost_of = self._assumptions.cost_of
        roles = roles_of(replica_set, self._assumptions.cost_to_respect if course.selection.replacing else cost_of)
        try:
            if roles.new:
                self._rank(replica_set, roles, course, moment.now)
                return None
            course.new_since = None
            return self._at_rest(replica_set, roles, course, moment)
        except NoRoomError:
            self._queue.replace(uid, ())
            return None

    def _rank(self, replica_set: ReplicaSetPods, roles: Roles, course: _Course, now: float) -> None:
        """Give new pods a cost, after a short wait if other pods of the ReplicaSet are about to be bound."""
        uid = replica_set.controller.uid
        if course.new_since is None:
            course.new_since = now
        wait_until = -inf
        if not all(pod.node_name for pod in replica_set.pods):
            wait_until = course.new_since + GATHER_SECONDS
        if replica_set.on_its_way_out:
            wait_until = course.since + UNREADY_REST_SECONDS
        if wait_until > now:
            self._look_again(uid, wait_until)
            self._queue.replace(uid, ())
            return
        costs = rank_new(replica_set, roles)
        self._queue.replace(uid, self._patches(replica_set, costs, Purpose.RANK, course.selection.policy))

    def _at_rest(
        self, replica_set: ReplicaSetPods, roles: Roles, course: _Course, moment: ClockReading
    ) -> Avoided | None:
        """Check whether the ranks are still the best, after everything has been at rest for long enough."""
        uid, now = replica_set.controller.uid, moment.now
        if self._queue.of(uid) or self._assumptions.under_way(replica_set.pods):
            return None
        if replica_set.in_motion:
            return None
        rest = REST_SECONDS if all(pod.ready for pod in replica_set.pods) else UNREADY_REST_SECONDS
        if course.since + rest > now:
            self._look_again(uid, course.since + rest)
            return None
        avoided = avoided_between(course.at_rest, replica_set, course.selection, moment.time_of_day)
        course.at_rest = replica_set
        costs = rerank(replica_set, roles)
        if costs is None:
            return avoided
        if course.may_rerank > now:
            self._look_again(uid, course.may_rerank)
            return avoided
        course.may_rerank = now + RERANK_INTERVAL_SECONDS
        patches = self._patches(replica_set, costs, Purpose.RERANK, course.selection.policy)
        self._queue.replace(uid, patches)
        return avoided

    def _removals(self, replica_set: ReplicaSetPods, policy: str) -> list[Patch]:
        return [
            self._patch(pod, None, Purpose.REMOVE, policy, replica_set.controller.uid)
            for pod in replica_set.pods
            if (cost := self._assumptions.cost_of(pod)) is not None and cost.ours
        ]

    def _strays(self, now: float) -> list[Patch]:
        """Remove costs from pods whose controller does not use them, such as orphaned pods."""
        strays = self._index.strays
        self._assumptions.drop_confirmed(strays, now)
        return [
            self._patch(pod, None, Purpose.REMOVE, "", "")
            for pod in strays
            if self._assumptions.cost_of(pod) is not None and self._resting.get(pod.namespace, -inf) <= now
        ]

    def _patches(self, replica_set: ReplicaSetPods, costs: Costs, purpose: Purpose, policy: str) -> list[Patch]:
        uid = replica_set.controller.uid
        return [self._patch(pod, costs[pod.uid], purpose, policy, uid) for pod in replica_set.pods if pod.uid in costs]

    def _patch(self, pod: Pod, cost: int | None, purpose: Purpose, policy: str, replica_set: str) -> Patch:
        before = self._assumptions.cost_of(pod)
        return Patch(
            pod=pod,
            cost=cost,
            before=before,
            replacing=before is not None and not before.ours,
            unseen=self._assumptions.unseen(pod),
            purpose=purpose,
            policy=policy,
            replica_set=replica_set,
        )

    def _look_again(self, uid: str, at: float) -> None:
        if at < self._due.get(uid, inf):
            self._due[uid] = at

    def _forget(self, uid: str) -> None:
        self._queue.replace(uid, ())
        self.contests.forget(uid)
        for kept in (self._courses, self._due, self._unexamined):
            kept.pop(uid, None)
