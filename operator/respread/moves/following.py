"""Follows a move in a snapshot: its pod, which pod replaces it, how the move ends, and whether that lasts.

A container without a readiness probe is Ready as soon as it runs, and one that crashes repeatedly is Ready for a moment
each time. So a replacement must stay Ready for a while.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from math import inf
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.moves.entry import (
    LEAVING_SINCE,
    Compare,
    Ended,
    MoveEntry,
    MovePhase,
    Outcome,
    at_phase,
    controller_uid_of,
    is_stateful,
    pods_of,
    still_there,
    waiting,
)
from respread.planning.plan import Move
from respread.planning.victims.protection import is_active
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread


def compared(spread: Spread, move: Move, replacement: Pod) -> Outcome:
    """Return `Improved` if the replacement's place improves a group and makes none worse, by the current groups.

    A step of a plan must do the same (`planning.search.safety`): a group with one domain too full instead of another is
    unchanged. A group that is gone, for example after a rollout, can't improve: `Unknown` if all are gone.
    """
    groups = [
        (group, before)
        for key, before in zip(move.groups, move.from_domains, strict=True)
        if (group := spread.groups.get(key)) is not None
    ]
    if any(_grown(group, before, replacement) for group, before in groups):
        return Outcome.WORSE
    outcomes = [_in_group(group, before, replacement) for group, before in groups]
    for outcome in (Outcome.IMPROVED, Outcome.WORSE, Outcome.UNCHANGED):
        if outcome in outcomes:
            return outcome
    return Outcome.UNKNOWN


def _in_group(group: SpreadGroup, before: str, replacement: Pod) -> Outcome:
    domain = group.domains.of_node.get(replacement.node_name)
    if domain == before:
        return Outcome.UNCHANGED
    return Outcome.IMPROVED if group.too_full(replacement.node_name) is None else Outcome.WORSE


def _grown(group: SpreadGroup, before: str, replacement: Pod) -> bool:
    """Whether a group has more excess than it would have with the pod in its old place."""
    domain = group.domains.of_node.get(replacement.node_name)
    if domain is None or domain == before:
        return False
    counts = Counter(group.counts)
    counts.subtract([domain])
    if before in group.domains.nodes:
        counts.update([before])
    return group.excess > group.key.counts(counts, len(group.domains.nodes)).excess


STEADY_SECONDS: Final = 10.0
"""How long a replacement must stay Ready."""
_STILL_THERE: Final = {
    MovePhase.OWED: "its eviction was refused, though others that it was to go with were made",
    MovePhase.SENT: "its eviction was not confirmed",
    MovePhase.EVICTED: "its eviction was accepted",
}
EXCHANGED_SECONDS: Final = 60.0
"""For how long it is known which pod has replaced which: longer than a plan is carried out."""


class Judged(NamedTuple):
    """What became of replacements that were Ready."""

    lasting: tuple[Move, ...] = ()
    """Moves whose replacements have stayed Ready."""
    relapsed: tuple[Ended, ...] = ()
    """Moves whose replacements are not Ready any more. They end once more, as `NotReady`."""
    undecided: tuple[Move, ...] = ()
    """Moves whose replacements were deleted: by a rollout, a scale-down or somebody else, which tells nothing."""

    @property
    def uids(self) -> frozenset[str]:
        """The UIDs of the evicted pods."""
        return frozenset(
            each.pod.uid for each in (*self.lasting, *self.undecided, *(each.move for each in self.relapsed))
        )


class ReplacementPods:
    """The possible replacements in a snapshot, determined once for all moves with the same known pods."""

    def __init__(self, snapshot: ClusterSnapshot, taken: Iterable[str]) -> None:
        self._snapshot = snapshot
        self._taken = set(taken)
        self._candidates: dict[tuple[str, int], tuple[frozenset[str], deque[Pod]]] = {}
        """By controller and the identity of the known pods, which are kept alive. The first one is taken first."""

    def take(self, entry: MoveEntry) -> Pod | None:
        """Return the replacement of a pod, and give it to no other; None if there is none yet."""
        names = pods_of(self._snapshot, entry.move.pod.namespace, controller_uid_of(entry.move))
        if is_stateful(entry):
            same = names.get(entry.move.pod.name)
            found = None if same is None or not self._may_replace(same, entry.known) else same
        else:
            found = self._first(names, entry)
        if found is not None:
            self._taken.add(found.uid)
        return found

    def _first(self, names: PodsByName, entry: MoveEntry) -> Pod | None:
        at = (controller_uid_of(entry.move), id(entry.known))
        if at not in self._candidates:
            new = [pod for pod in names.values() if self._may_replace(pod, entry.known)]
            new.sort(key=lambda pod: (pod.creation_timestamp or LEAVING_SINCE, pod.name))
            self._candidates[at] = entry.known, deque(new)
        _, candidates = self._candidates[at]
        while candidates:
            pod = candidates.popleft()
            if pod.uid not in self._taken:
                return pod
        return None

    def _may_replace(self, pod: Pod, known: Collection[str]) -> bool:
        return pod.uid not in known and pod.uid not in self._taken and is_active(pod)


class Knowing:
    """Adds the replacements of finished moves to the known pods of other moves."""

    def __init__(self, over: Iterable[Ended]) -> None:
        self._replacing: dict[str, set[str]] = {}
        """By controller."""
        self._known: dict[tuple[str, int], frozenset[str]] = {}
        """By controller and the identity of the known pods, so that moves with the same known pods still share them."""
        for each in over:
            if each.replacement is not None:
                self._replacing.setdefault(controller_uid_of(each.move), set()).add(each.replacement.uid)

    def of(self, entry: MoveEntry) -> MoveEntry:
        """Return a move with everything that is known now."""
        controller = controller_uid_of(entry.move)
        if (replacing := self._replacing.get(controller)) is None:
            return entry
        at = (controller, id(entry.known))
        if (known := self._known.get(at)) is None:
            known = self._known[at] = entry.known | replacing
        return msgspec.structs.replace(entry, known=known)


def followed(entry: MoveEntry, snapshot: ClusterSnapshot, now: float, replacements: ReplacementPods) -> MoveEntry:
    """Return the move with the state of its pod and its replacement in the snapshot."""
    if entry.phase < MovePhase.LEAVING:
        if still_there(snapshot, entry.move.pod) is not None:
            return entry
        entry = at_phase(entry, MovePhase.LEAVING, now)
    entry = _with_replacement(entry, snapshot, now, replacements)
    if entry.replacement is not None and entry.replacement.node_name and entry.phase < MovePhase.PLACED:
        placed_at = now if entry.placed_at is None else entry.placed_at
        entry = msgspec.structs.replace(at_phase(entry, MovePhase.PLACED, now), placed_at=placed_at)
    return entry


def _with_replacement(
    entry: MoveEntry, snapshot: ClusterSnapshot, now: float, replacements: ReplacementPods
) -> MoveEntry:
    if entry.replacement is not None:
        current = still_there(snapshot, entry.replacement)
        if current is entry.replacement:
            return entry
        if current is not None:
            return msgspec.structs.replace(entry, replacement=current)
        # It failed or was deleted too: its controller creates another one, unless it was scaled down.
        known = entry.known | {entry.replacement.uid}
        entry = at_phase(entry, MovePhase.LEAVING, now)
        entry = msgspec.structs.replace(entry, replacement=None, known=known, is_bereft=True)
    if (replacement := replacements.take(entry)) is None:
        return entry
    return msgspec.structs.replace(at_phase(entry, MovePhase.REPLACED, now), replacement=replacement)


def end_of(entry: MoveEntry, now: float, ready_seconds: Mapping[str, float], compare: Compare) -> Ended | None:
    """Return how a move has ended, or None if it continues."""
    replacement = entry.replacement
    if replacement is not None and entry.phase is MovePhase.PLACED and replacement.ready:
        where = f"its replacement {replacement.name} on {replacement.node_name} is Ready"
        ended = _ended(entry, compare(entry.move, replacement), now, where)
        return msgspec.structs.replace(ended, seconds=min(ended.seconds, _until_ready(entry, replacement)))
    if entry.phase is MovePhase.LEAVING and not entry.wanted:
        return _ended(entry, Outcome.UNKNOWN, now, "its controller wants no replacement any more")
    since, seconds = waiting(entry, ready_seconds)
    return _given_up(entry, now, f"{now - since:.0f} s") if now - since >= seconds else None


def _until_ready(entry: MoveEntry, replacement: Pod) -> float:
    """Return how long it took at most until a replacement was Ready, even if nobody saw that; infinity if unknown.

    Kubernetes stores whole seconds.
    """
    if replacement.ready_seconds is None or replacement.creation_timestamp is None:
        return inf
    created_after = (replacement.creation_timestamp - entry.time_sent).total_seconds()
    return max(0.0, created_after) + replacement.ready_seconds + 1.0


def _given_up(entry: MoveEntry, now: float, waited: str) -> Ended:
    replacement = entry.replacement
    if entry.placed_at is not None:
        if replacement is None:
            how = "its replacement failed, and no other was Ready"
        else:
            on = f" on {replacement.node_name}" if replacement.node_name else ", which has no node,"
            how = f"its replacement {replacement.name}{on} was not Ready"
        return _ended(entry, Outcome.NOT_READY, now, f"{how} after {waited}")
    if replacement is not None:
        return _ended(entry, Outcome.UNPLACED, now, f"its replacement {replacement.name} has no node after {waited}")
    if entry.phase is MovePhase.LEAVING:
        ended = _ended(entry, Outcome.UNKNOWN, now, f"it was not replaced within {waited}")
        return msgspec.structs.replace(ended, unreplaced=True)
    ended = _ended(entry, Outcome.UNKNOWN, now, f"{_STILL_THERE[entry.phase]}, and it is still there after {waited}")
    return msgspec.structs.replace(ended, unmade=entry.phase <= MovePhase.SENT)


def _ended(entry: MoveEntry, outcome: Outcome, now: float, message: str) -> Ended:
    return Ended(
        move=entry.move, outcome=outcome, replacement=entry.replacement, seconds=now - entry.sent_at, message=message
    )


def judged(steadying: Iterable[MoveEntry], snapshot: ClusterSnapshot, now: float) -> Judged:
    """Return what became of the replacements of moves that ended well, as far as that is decided.

    `now` is on the caller's clock.
    """
    lasting: list[Move] = []
    relapsed: list[Ended] = []
    undecided: list[Move] = []
    for entry in steadying:
        if entry.ended is None or entry.replacement is None:
            continue
        pod, since = snapshot.pods.get(entry.replacement.key), now - entry.phase_since
        if pod is None or pod.uid != entry.replacement.uid or pod.terminating:
            undecided.append(entry.move)
        elif not pod.ready or pod.finished:
            message = (
                f"its replacement {pod.name} on {entry.replacement.node_name} was Ready for less than {since:.0f} s"
            )
            relapsed.append(msgspec.structs.replace(entry.ended, outcome=Outcome.NOT_READY, message=message))
        elif since >= STEADY_SECONDS:
            lasting.append(entry.move)
    return Judged(tuple(lasting), tuple(relapsed), tuple(undecided))


class Exchanged(NamedTuple):
    """A pod that a move has replaced lately."""

    controller: str
    """The UID of its controller."""
    replacement: str
    """The UID of the pod that replaces it."""
    at: float
    """When the move ended, on the caller's clock."""


class Siblings(NamedTuple):
    """The pods of a controller at one moment, which moves sent then know."""

    names: PodsByName
    uids: frozenset[str]
    newest: datetime


def siblings_in(
    snapshot: ClusterSnapshot, namespace: str, controller_uid: str, arrived: frozenset[str], known: Siblings | None
) -> Siblings:
    """Return the pods of a controller that replace none that is evicted now.

    The pods that `arrived` have replaced others lately. What is `known` was returned the last time, and is returned
    again if the controller has the same pods: one that has arrived since is among them.
    """
    names = pods_of(snapshot, namespace, controller_uid)
    if known is not None and known.names is names:
        return known
    created = (each.creation_timestamp or LEAVING_SINCE for each in names.values())
    uids = arrived.union(each.uid for each in names.values())
    return Siblings(names, uids, max(created, default=LEAVING_SINCE))


def exchanging(before: Map[str, Exchanged], over: Iterable[Ended], now: float) -> Map[str, Exchanged]:
    """Return what replaced the pods of moves that are over, which is known for a while, by the evicted pods' UIDs."""
    exchanged = Map({uid: each for uid, each in before.items() if now - each.at < EXCHANGED_SECONDS})
    for ended in over:
        if ended.replacement is not None:
            pod, uid = ended.move.pod, controller_uid_of(ended.move)
            exchanged = exchanged.set(pod.uid, Exchanged(uid, ended.replacement.uid, now))
    return exchanged


def after_end(entry: MoveEntry, ended: Ended, now: float) -> MoveEntry:
    """Return a move in flight that has just ended."""
    phase = MovePhase.UNCERTAIN if ended.unmade and entry.counts is not None else MovePhase.OVER
    if ended.outcome is Outcome.IMPROVED and ended.replacement is not None:
        phase = MovePhase.STEADYING
    return msgspec.structs.replace(at_phase(entry, phase, now), ended=ended, lingers=True)
