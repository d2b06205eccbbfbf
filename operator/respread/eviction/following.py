"""Follows a move in flight in a snapshot: its pod, its replacement, and how the move ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from respread.cluster.grouped_pods import PodsByName
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.flight import (
    LEAVING_SINCE,
    Ended,
    Flight,
    Patience,
    Stage,
    at_stage,
    controller_uid_of,
    is_stateful,
    pods_of,
    still_there,
    waiting,
)
from respread.eviction.outcomes import Compare, Outcome
from respread.planning.victims.controllers import is_active

_STILL_THERE: Final = {
    Stage.OWED: "its eviction was refused, though others that it was to go with were made",
    Stage.SENT: "its eviction was not confirmed",
    Stage.EVICTED: "its eviction was accepted",
}


class ReplacementPods:
    """The possible replacements in a snapshot, determined once for all moves with the same known pods."""

    __slots__ = ("_candidates", "_snapshot", "_taken")

    def __init__(self, snapshot: ClusterSnapshot, taken: Iterable[str]) -> None:
        self._snapshot = snapshot
        self._taken = set(taken)
        self._candidates: dict[tuple[str, int], tuple[frozenset[str], deque[Pod]]] = {}
        """By controller and the identity of the known pods, which are kept alive. The first one is taken first."""

    def take(self, flight: Flight) -> Pod | None:
        """Return the replacement of a pod, and give it to no other; None if there is none yet."""
        names = pods_of(self._snapshot, flight.move.pod.namespace, controller_uid_of(flight.move))
        if is_stateful(flight):
            same = names.get(flight.move.pod.name)
            found = None if same is None or not self._may_replace(same, flight.known) else same
        else:
            found = self._first(names, flight)
        if found is not None:
            self._taken.add(found.uid)
        return found

    def _first(self, names: PodsByName, flight: Flight) -> Pod | None:
        at = (controller_uid_of(flight.move), id(flight.known))
        if at not in self._candidates:
            new = [pod for pod in names.values() if self._may_replace(pod, flight.known)]
            new.sort(key=lambda pod: (pod.creation_timestamp or LEAVING_SINCE, pod.name))
            self._candidates[at] = flight.known, deque(new)
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

    __slots__ = ("_known", "_replacing")

    def __init__(self, over: Iterable[Ended]) -> None:
        self._replacing: dict[str, set[str]] = {}
        """By controller."""
        self._known: dict[tuple[str, int], frozenset[str]] = {}
        """By controller and the identity of the known pods, so that moves with the same known pods still share them."""
        for each in over:
            if each.replacement is not None:
                self._replacing.setdefault(controller_uid_of(each.move), set()).add(each.replacement.uid)

    def of(self, flight: Flight) -> Flight:
        """Return a flight with everything that is known now."""
        controller = controller_uid_of(flight.move)
        if (replacing := self._replacing.get(controller)) is None:
            return flight
        at = (controller, id(flight.known))
        if (known := self._known.get(at)) is None:
            known = self._known[at] = flight.known | replacing
        return msgspec.structs.replace(flight, known=known)


def followed(flight: Flight, snapshot: ClusterSnapshot, now: float, replacements: ReplacementPods) -> Flight:
    """Return the flight with the state of its pod and its replacement in the snapshot."""
    if flight.stage < Stage.LEAVING:
        if still_there(snapshot, flight.move.pod) is not None:
            return flight
        flight = at_stage(flight, Stage.LEAVING, now)
    flight = _with_replacement(flight, snapshot, now, replacements)
    if flight.replacement is not None and flight.replacement.node_name and flight.stage < Stage.PLACED:
        placed_at = now if flight.placed_at is None else flight.placed_at
        flight = msgspec.structs.replace(at_stage(flight, Stage.PLACED, now), placed_at=placed_at)
    return flight


def _with_replacement(flight: Flight, snapshot: ClusterSnapshot, now: float, replacements: ReplacementPods) -> Flight:
    if flight.replacement is not None:
        current = still_there(snapshot, flight.replacement)
        if current is flight.replacement:
            return flight
        if current is not None:
            return msgspec.structs.replace(flight, replacement=current)
        # It failed or was deleted too: its controller creates another one.
        known = flight.known | {flight.replacement.uid}
        flight = msgspec.structs.replace(at_stage(flight, Stage.LEAVING, now), replacement=None, known=known)
    replacement = replacements.take(flight)
    return (
        flight
        if replacement is None
        else msgspec.structs.replace(at_stage(flight, Stage.REPLACED, now), replacement=replacement)
    )


def end_of(flight: Flight, now: float, patience: Patience, compare: Compare) -> Ended | None:
    """Return how a move has ended, or None if it continues."""
    replacement = flight.replacement
    if replacement is not None and flight.stage is Stage.PLACED and replacement.ready:
        where = f"its replacement {replacement.name} on {replacement.node_name} is Ready"
        return _ended(flight, compare(flight.move, replacement), now, where)
    if flight.stage is Stage.LEAVING and not flight.wanted:
        return _ended(flight, Outcome.UNKNOWN, now, "its controller wants no replacement any more")
    since, seconds = waiting(flight, patience)
    return _given_up(flight, now, f"{now - since:.0f} s") if now - since >= seconds else None


def _given_up(flight: Flight, now: float, waited: str) -> Ended:
    """Return how a move has ended on which Respread gives up."""
    replacement = flight.replacement
    if flight.placed_at is not None:
        if replacement is None:
            how = "its replacement failed, and no other was Ready"
        else:
            on = f" on {replacement.node_name}" if replacement.node_name else ", which has no node,"
            how = f"its replacement {replacement.name}{on} was not Ready"
        return _ended(flight, Outcome.NOT_READY, now, f"{how} after {waited}")
    if replacement is not None:
        return _ended(flight, Outcome.UNPLACED, now, f"its replacement {replacement.name} has no node after {waited}")
    if flight.stage is Stage.LEAVING:
        ended = _ended(flight, Outcome.UNKNOWN, now, f"it was not replaced within {waited}")
        return msgspec.structs.replace(ended, unreplaced=True)
    ended = _ended(flight, Outcome.UNKNOWN, now, f"{_STILL_THERE[flight.stage]}, and it is still there after {waited}")
    return msgspec.structs.replace(ended, unmade=flight.stage <= Stage.SENT)


def _ended(flight: Flight, outcome: Outcome, now: float, message: str) -> Ended:
    return Ended(
        move=flight.move,
        outcome=outcome,
        replacement=flight.replacement,
        seconds=now - flight.sent_at,
        message=message,
    )
