"""Publishes what each reconcile found and did: in metrics, statuses and records."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from respread.controller.acting import Acting
from respread.controller.choosing import left_to_do
from respread.controller.observation import Observation
from respread.controller.permits.permission_needs import PermissionNeeds
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.records.status_writer import Wanted
from respread.controller.report import Reconciled, ViolationTimes, to_tell
from respread.controller.scheduler_model import SchedulerModel
from respread.controller.waking import PlanningThread
from respread.eviction.limits.remaining import Remaining
from respread.eviction.pacing import Paced
from respread.planning.plan import Plan
from respread.planning.victims.budget_index import BudgetIndex
from respread.planning.victims.policies import reach
from respread.provisioning.room_loop import RoomLoop
from respread.telemetry.metrics import Forgetting, Metrics


class Reporter:
    """Tells users, Prometheus and the next leader. It belongs to one event loop."""

    def __init__(
        self,
        acting: Acting,
        prevention: PreventionLoop,
        room: RoomLoop,
        *,
        needs: PermissionNeeds,
        metrics: Metrics,
        scheduler: SchedulerModel,
        thread: PlanningThread,
    ) -> None:
        """Create it.

        Args:
            acting: knows what was done, and writes statuses.
            prevention: knows whose pod deletion costs are contested.
            room: knows what is done about missing room.
            needs: tells which permissions are missing.
            metrics: receive every plan.
            scheduler: audits constraints.
            thread: runs long computations.
        """
        self._acting = acting
        self._prevention = prevention
        self._room = room
        self._needs = needs
        self._metrics = metrics
        self._scheduler = scheduler
        self._thread = thread
        self._budgets = BudgetIndex()
        self._remaining: Mapping[str, Remaining] = {}
        self._violation_times = ViolationTimes(
            lambda policy, seconds: metrics.observe_rebalance(policy=policy, seconds=seconds)
        )
        self._forgetting = Forgetting(metrics)

    def forget(self, observation: Observation, planned: Plan) -> None:
        """Forget what is gone, in memory and metrics."""
        groups, policies = observation.spread.groups, observation.policies
        if observation.leads:
            self._violation_times.see(groups, planned.policies, observation.moment.now)
        busy = {key for move in observation.ledger.moves for key in move.groups}
        history = self._acting.journal.history
        history.forget_expired(groups, busy)
        history.forget_others(policies)
        history.forget_other_namespaces(observation.snapshot.namespaces)
        self._forgetting.keep(policies, observation.snapshot.namespaces)

    async def tell(self, observation: Observation, planned: Plan, chosen: Paced) -> float:
        """Publish the results, and return when a status is due next, on the clock; infinity if none is."""
        statuses, now = self._acting.statuses, self._acting.journal.moment().now
        due = statuses.any_due(observation.policies.values(), now)
        wanted = await self._told(observation, planned, chosen, due=due)
        if not observation.leads or not self._acting.permission.leads:
            return inf
        return await statuses.write(wanted, now)

    async def tell_last(self, observation: Observation, planned: Plan, chosen: Paced) -> None:
        """Publish the results in all statuses and records, whether they are due or not."""
        await self._acting.statuses.write_all(await self._told(observation, planned, chosen, due=True))

    async def _told(self, observation: Observation, planned: Plan, chosen: Paced, *, due: bool) -> list[Wanted]:
        """Show the results in metrics, and return them as statuses.

        What is left to be done is estimated only if a status is due: in a storm, plans are made more often.
        """
        ledger = self._acting.journal.ledger
        if due:
            self._remaining = await self._thread.compute(
                left_to_do, planned, chosen, ledger, observation, self._budgets
            )
        reconciled = Reconciled(
            spread=observation.spread,
            plan=planned,
            reach=await self._thread.compute(reach, observation.setting.index, observation.snapshot),
            held=chosen.held,
            in_flight=ledger.of_policies,
            remaining=self._remaining,
            recorded_moves=self._acting.journal.for_records(observation.snapshot),
            other_evictors=self._acting.holds.others.repeated,
            contested_costs=self._prevention.contested,
            room_missing=self._room.missing,
            missing_permissions=self._needs.look(
                observation.policies, planned.policies, observation.snapshot.namespaces, acts=observation.leads
            ),
            findings=await self._thread.compute(
                self._scheduler.auditor.update, observation.snapshot, observation.spread, self._scheduler.predictor
            ),
            time=observation.moment.time_of_day,
        )
        figures, wanted = await self._thread.compute(to_tell, observation, reconciled)
        self._metrics.show_plan(figures)
        in_flight = ledger.of_policies
        self._metrics.show_evictions_in_flight({name: in_flight.get(name, 0) for name in observation.policies})
        return wanted
