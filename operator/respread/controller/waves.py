"""Making the moves of one wave: written down first where a limit needs it, carried out, told and counted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from respread.api.reasons import Reason
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.controller.announcements import Announcements
from respread.controller.confirming import Confirming
from respread.controller.permission import Permission, Policies
from respread.controller.policy_versions import PolicyReader
from respread.controller.record import Record
from respread.controller.recovery import moves_to_remember
from respread.controller.status_writer import StatusWriter, Wanted
from respread.eviction.carry_out import Carried, Carrier
from respread.eviction.pacing import Limiter
from respread.eviction.steps import Portions
from respread.handlers.informers import Intake
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.spread.group import GroupKey
from respread.spread.index import Spread
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics

_log: Final = get_logger(__name__)

STALE_SECONDS: Final = 180.0
"""The API server sends a bookmark every minute: what was silent for so long may be far behind, and nothing is evicted
by it."""
CUT_SECONDS: Final = 4.0
"""How long moves are made by one plan before the rest is planned anew: replacements have got Ready meanwhile, and their
places are free. Long before what is left is too old to be made (`permission`)."""


class Waves:
    """Makes waves."""

    __slots__ = (
        "_announcements",
        "_carrier",
        "_confirming",
        "_intake",
        "_metrics",
        "_permission",
        "_record",
        "_statuses",
        "cut",
    )

    def __init__(
        self,
        carrier: Carrier,
        permission: Permission,
        record: Record,
        statuses: StatusWriter,
        policy_reader: PolicyReader,
        *,
        announcements: Announcements,
        metrics: Metrics,
        intake: Intake,
    ) -> None:
        """Make waves.

        Args:
            carrier: carries out moves.
            permission: what the carrier asks before every step; told here what the moves were planned for.
            record: what was done so far.
            statuses: writes down what is about to be done.
            policy_reader: asks the API server for the policies' versions.
            announcements: tell people.
            metrics: count.
            intake: how fresh what is known is, and the policies as they are.
        """
        self._carrier = carrier
        self._permission = permission
        self._record = record
        self._statuses = statuses
        self.cut = False
        """Whether moves were left of the last wave only because it took too long."""
        self._confirming = Confirming(policy_reader, permission)
        self._announcements = announcements
        self._metrics = metrics
        self._intake = intake

    async def make(
        self,
        moves: Sequence[Move],
        snapshot: ClusterSnapshot,
        policies: Policies,
        *,
        limiters: Sequence[Limiter],
        planned_at: float,
    ) -> bool:
        """Make moves, and return whether all of them were made.

        Args:
            moves: those that are to be made now.
            snapshot: the cluster they were planned on.
            policies: the policies they were planned for.
            limiters: the limits that count for them.
            planned_at: when, in seconds on the permission's clock.
        """
        self.cut = False
        if (stale := self._stale()) is not None:
            _log.warning("Nothing is evicted for now", reason=stale.reason, message=stale.message)
            return False
        named = {move.policy for move in moves}
        concerned = [each for each in limiters if each.shared or each.policy in named]
        bounded = {move.pod.uid: [each.policy for each in concerned if each.bounds(move, snapshot)] for move in moves}
        hourly = {each.policy for each in concerned if each.limits.per_hour}
        async with self._confirmed(policies, moves, planned_at) as unconfirmed:
            if unconfirmed:
                namespace, held = next(iter(unconfirmed.items()))
                _log.warning(
                    "Nothing is evicted for now",
                    namespace=namespace,
                    others=len(unconfirmed) - 1,
                    reason=held.reason,
                    message=held.message,
                )
            clock = self._carrier.flights.clock
            begun = clock()
            portions = Portions([move for move in moves if move.pod.namespace not in unconfirmed])
            made = 0
            while portions and clock() - begun < CUT_SECONDS:
                portion, since = portions.take(), clock()
                carried = await self._carrier.carry_out(
                    portion,
                    snapshot,
                    self._grace_period_seconds,
                    lambda ready: self._write_down(ready, bounded, hourly, snapshot, policies),
                )
                portions.took(len(portion), clock() - since)
                made += sum(self._account_for(each, bounded[each.move.pod.uid], each.move.groups) for each in carried)
            self.cut = bool(portions)
        return made == len(moves)

    async def ask_again(
        self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, *, planned_at: float
    ) -> None:
        """Ask once more for evictions that were never answered, where a group that they were to help is still violated.

        Args:
            snapshot: the cluster as the watch shows it.
            spread: its spread groups.
            policies: the policies now.
            planned_at: the time, in seconds on the permission's clock.
        """

        def still_wanted(move: Move) -> bool:
            pod = snapshot.pods.get(move.pod.key)
            return (
                pod is not None
                and pod.uid == move.pod.uid
                and not pod.terminating
                and any((group := spread.groups.get(key)) is not None and group.violated for key in move.groups)
            )

        flights = self._carrier.flights
        if self._stale() is not None or not flights.now.unmade:
            return
        async with self._confirmed(policies, flights.now.unanswered(flights.clock(), 0), planned_at):
            carried = await self._carrier.ask_again(snapshot, still_wanted, self._grace_period_seconds)
        for each in carried:
            self._account_for(each, (), ())  # for the limits of an hour it was counted when it was first sent

    async def aclose(self) -> None:
        """End what goes on after a wave."""
        await self._confirming.aclose()

    @contextlib.asynccontextmanager
    async def _confirmed(
        self, policies: Policies, moves: Iterable[Move], planned_at: float
    ) -> AsyncIterator[Mapping[str, Held]]:
        """Begin a wave, and ask the API server again and again whether the policies are still those it is made for.

        Yields:
            The namespaces of which they may not be, and why; a move there is held until they are.
        """
        namespaces = {move.pod.namespace for move in moves}
        self._permission.begin_wave(policies, namespaces, planned_at)
        async with self._confirming.of(namespaces):
            found = {namespace: self._permission.unconfirmed(namespace) for namespace in sorted(namespaces)}
            yield {namespace: held for namespace, held in found.items() if held is not None}

    async def _write_down(
        self,
        moves: Sequence[Move],
        bounded: Mapping[str, list[str]],
        hourly: Collection[str],
        snapshot: ClusterSnapshot,
        policies: Policies,
    ) -> set[str]:
        """Write down evictions before they are made, and return the UIDs of the pods for which that failed.

        Whoever leads after a crash right afterwards follows them to their outcome, and counts them for
        `limits.perHour` and `limits.perHourPerGroup`.
        """
        before = self._record.history, self._record.group_history
        for move in moves:
            self._record.count(move.policy, bounded[move.pod.uid], move.groups, certain=False)
        remembered = moves_to_remember(self._carrier.flights.about_to_send(moves, snapshot), snapshot)
        counting = {name for names in bounded.values() for name in names if name in hourly}
        wanted = []
        for name in sorted(counting | {move.policy for move in moves}):
            policy = policies[name]
            seen = self._intake.policies.statuses.get(name, PolicyStatus())
            ahead = msgspec.structs.replace(
                self._statuses.known(policy, seen),
                recent_evictions=self._record.recent_evictions(policy),
                group_evictions=self._record.group_evictions(name),
                failures_in_a_row=self._record.failures_in_a_row(name),
                moves_in_flight=remembered.get(name, ()),
            )
            wanted.append(Wanted(policy, ahead, seen))
        written = await self._statuses.ensure(wanted)
        self._record.history, self._record.group_history = before  # each is counted as it is made
        return {
            move.pod.uid
            for move in moves
            if not written.issuperset({move.policy, *counting & set(bounded[move.pod.uid])})
        }

    def _stale(self) -> Held | None:
        """Return why what is known of the cluster is not to be acted by, or None if it is."""
        kind, age = max(self._intake.health.ages_seconds().items(), key=lambda each: each[1])
        if age <= STALE_SECONDS:
            return None
        return Held(Reason.API_UNAVAILABLE, f"nothing was heard of {kind} for {age:.0f} s")

    def _account_for(self, carried: Carried, bounded: Sequence[str], groups: Iterable[GroupKey]) -> bool:
        """Tell what came of a move, count it for the limits of policies and groups, and return whether it was made."""
        move, answer = carried.move, carried.result
        if isinstance(answer, Held):
            self._announcements.held_back(move, answer)
            return False
        self._metrics.count_eviction(policy=move.policy, namespace=move.pod.namespace, result=answer.result)
        self._announcements.eviction(move, answer)
        if answer.may_have_evicted:
            self._record.serve(move.pod.namespace)
            self._record.count(move.policy, bounded, groups, certain=answer.evicted)
        else:
            self._statuses.hurry(bounded)  # what was written down was not done
        return answer.may_have_evicted

    def _grace_period_seconds(self, move: Move) -> int | None:
        policy = self._intake.policies.current(move.policy)
        return None if policy is None else policy.spec.eviction.grace_period_seconds
