"""Everything that one reconcile uses, at one moment, and what became of the moves that it finds ended.

It is observed once, and passed to each of the reconcile's steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from immutables import Map

from respread.api.policy import EvictionOptions
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import Policies
from respread.controller.acting import Acting
from respread.controller.permission import Leading
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.records.history import History
from respread.controller.scheduler_model import SchedulerModel
from respread.controller.takeover import Takeover
from respread.controller.waking import PlanningThread
from respread.eviction.limiter import Bounding, Limiter, Limiters
from respread.handlers.informer import Informers
from respread.holds.holds import why_stale
from respread.moves.entry import Ended, still_there
from respread.moves.following import Judged, compared
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.selection import Refused
from respread.spread.index import Spread
from respread.telemetry.metrics import OUTCOMES, Metrics
from respread.timing import ClockReading


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A value that every step of a reconcile uses, in any thread. It never changes.

    The effects of evictions during the reconcile are visible in the next one.
    """

    snapshot: ClusterSnapshot
    """The cluster as the watch shows it."""
    spread: Spread
    """Its spread groups."""
    policies: Policies
    statuses: Mapping[str, PolicyStatus]
    """The last written statuses, by policy name."""
    seen: Mapping[str, PolicyStatus]
    """The statuses as the watch shows them, which may be older."""
    setting: PolicySetting
    """The policies and the priority classes that they refer to."""
    limiters: tuple[Limiter, ...]
    """The limits in effect, one for each policy."""
    ledger: Ledger
    """The moves."""
    history: History
    """What was done so far, and its outcomes."""
    refused: Refused
    """What the API server has refused lately."""
    moment: ClockReading
    """When it was made."""
    term: int | None
    """The term in which this replica leads, and knows everything that was done before it; None if it does not lead."""

    @property
    def leads(self) -> bool:
        """Whether this replica leads, and knows everything that was done before it."""
        return self.term is not None


class Observer:
    """Takes over changes of the cluster, and the outcomes of moves in flight. It belongs to one event loop."""

    def __init__(
        self,
        informers: Informers,
        acting: Acting,
        leading: Leading,
        prevention: PreventionLoop,
        metrics: Metrics,
        scheduler: SchedulerModel,
        thread: PlanningThread,
    ) -> None:
        self._informers = informers
        self._acting = acting
        self._prevention = prevention
        self._metrics = metrics
        self._scheduler = scheduler
        self._limiters = Limiters()
        self._setting = PolicySetting(())
        self._takeover = Takeover(acting, leading, notify=informers.changes.notify)
        self._thread = thread

    @property
    def acts(self) -> bool:
        """Whether this replica leads still, in a term in which everything is known that was done before it."""
        return self._takeover.acts

    async def observe(self, *, stopping: bool) -> Observation:
        """Take over changes and the outcomes of moves in flight. If `stopping`, nothing is sent any more."""
        informers, statuses = self._informers, self._acting.statuses
        with self._metrics.reconciling("observe"):
            snapshot, policies = informers.state.snapshot, informers.policies.policies
            self._scheduler.follow(policies.values())
            spread = await self._thread.compute(self._scheduler.index.update, snapshot)
            setting = self._setting_of(policies)
            known = self._scheduler.learn(spread, snapshot, setting.index)
            limiters = self._limiters.of(policies)
            term = await self._takeover.take_over(snapshot, spread, setting, limiters, known=known)
        with self._metrics.reconciling("follow"):
            moment = self._follow(snapshot, spread, policies, leads=term is not None, stopping=stopping)
        ledger = self._acting.journal.ledger
        self._prevention.observe(snapshot, spread, setting, ledger.uids, term, statuses.records)
        return Observation(
            snapshot=snapshot,
            spread=spread,
            policies=policies,
            statuses=statuses.all_known(policies, informers.policies.statuses),
            seen=informers.policies.statuses,
            setting=setting,
            limiters=limiters,
            ledger=ledger,
            history=self._acting.journal.history.at(moment.time, ledger.expected_with_chosen),
            refused=self._acting.holds.refusals.for_planning(),
            moment=moment,
            term=term,
        )

    def _setting_of(self, policies: Policies) -> PolicySetting:
        """Return the policies. They are kept, with their index and its answers, while none changes."""
        setting = PolicySetting(tuple(policies.values()), self._informers.priority_classes.by_name)
        if setting != self._setting:
            self._setting = setting
        return self._setting

    def _follow(
        self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, *, leads: bool, stopping: bool
    ) -> ClockReading:
        """Check the moves in flight, process their outcomes, and return when that was."""
        journal, follow_up = self._acting.journal, self._acting.follow_up
        before = journal.ledger
        if not stopping:
            follow_up.look_after(snapshot)
            if leads:
                follow_up.find_out()
                if before.unmade and why_stale(self._informers.health.ages_seconds()) is None:
                    ask_again(self._acting, snapshot, spread, policies)
        self._conclude(snapshot, spread, policies, leads=leads)
        moment = journal.moment()
        self._acting.holds.observe(snapshot, spread.groups, before, journal.ledger, moment, leads=leads)
        return moment

    def _conclude(self, snapshot: ClusterSnapshot, spread: Spread, policies: Policies, *, leads: bool) -> None:
        """Process the outcomes of moves. The leader of a term reports the moves of earlier terms too."""
        journal = self._acting.journal
        ledger = journal.ledger.patient(_ready_seconds(journal.ledger, policies))
        ledger, ended = ledger.updated(snapshot, journal.clock(), partial(compared, spread))
        judged = journal.followed(ledger, snapshot)
        if leads:
            for policy in journal.history.follow_trials(policies, snapshot):
                self._acting.announcements.resumed(policy)
            self._learn((*ended, *judged.relapsed), judged, spread, policies)

    def _learn(self, ended: Sequence[Ended], judged: Judged, spread: Spread, policies: Policies) -> None:
        """Report outcomes, and remember what affects the next moves."""
        announcements, history = self._acting.announcements, self._acting.journal.history
        single = {name: history.single(policy) for name, policy in policies.items()}
        for move in judged.lasting:
            history.learn_lasting(move)
        for move in judged.undecided:
            history.learn_undecided(policies.get(move.policy))
        for each in ended:
            self._metrics.count(OUTCOMES, policy=each.move.policy, outcome=each.outcome)
            announcements.end(each)
            history.learn(each, spread.groups, policies.get(each.move.policy))
        for name, policy in policies.items():
            if (paused := history.paused(policy)) is not None and single[name] is None:
                announcements.paused(policy, paused)
            elif single[name] is not None and history.single(policy) is None:
                announcements.resumed(policy)


def ask_again(acting: Acting, snapshot: ClusterSnapshot, spread: Spread, policies: Policies) -> None:
    """Send evictions again that may not have been made, if they would still help."""

    def still_helps(move: Move) -> bool:
        violated = any((group := spread.groups.get(key)) is not None and group.violated for key in move.groups)
        return violated and still_there(snapshot, move.pod) is not None

    planned_for = acting.permission.planned_for(policies, acting.journal.clock())
    acting.follow_up.ask_again(acting.evictions.batch(snapshot, planned_for, Bounding()), still_helps)


def _ready_seconds(ledger: Ledger, policies: Policies) -> Map[str, float]:
    """Return how long replacements may take, by the policies of moves, or the default if these are gone."""
    known = {move.policy: policies.get(move.policy) for move in ledger.moves}
    return Map(
        {
            name: (EvictionOptions() if policy is None else policy.spec.eviction).ready_timeout.total_seconds()
            for name, policy in known.items()
        }
    )
