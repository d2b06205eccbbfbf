"""The operator's evictions and follow-up on a real cluster, and two Deployments with evictable pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from immutables import Map

from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import Policies
from respread.controller.announcements import Announcements
from respread.controller.evictions import Batch, Carried, Evictions
from respread.controller.follow_up import FollowUp
from respread.controller.lanes import Lanes
from respread.controller.permission import Leading, Permission, PlannedFor
from respread.controller.records.journal import Journal, Recording
from respread.controller.records.status_writer import ExclusiveRequests, StatusWriter
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.eviction_api import EvictionApi
from respread.eviction.limiter import Bounding
from respread.eviction.owners.last_look import Owners
from respread.holds.refusals import Refusals
from respread.kube.requests import Requests, Response
from respread.moves.entry import Ended, MovePhase, Outcome
from respread.moves.ledger import Ledger
from respread.planning.plan import Move, Step
from respread_sandbox import Sandbox
from respread_sandbox.components import CONTROLLER_MANAGER
from tests.fake_requests import FakeRequests, PassedOn, Send
from tests.informer_parts import Parts
from tests.integration.eviction_cluster import requests_to
from tests.integration.snapshots import take_snapshot
from tests.integration.workloads import create_deployment, deployment, wait_for_ready_pods, wait_until


class Counted(PassedOn):
    """Requests that record the evictions that were sent."""

    def __init__(self, requests: Requests) -> None:
        super().__init__(requests)
        self.evictions: list[str] = []

    async def pass_on(self, path: str, names: Mapping[str, str], send: Send, **options: Any) -> Response:
        if path.endswith("/eviction"):
            self.evictions.append(names["name"])
        return await super().pass_on(path, names, send, **options)


MayEvict = Callable[[Move], Held | None]


class Allowing(Permission):
    """A permission that depends only on the test."""

    def __init__(self, may_evict: MayEvict) -> None:
        self._may_evict = may_evict
        self._leading = Leading(lambda: True, lambda: 0)

    async def confirm(self, namespace: str) -> None:
        """Create it without a source of policies."""

    def why_not(self, move: Move, planned: PlannedFor) -> Held | None:
        """Return the test's answer."""
        del planned
        return self._may_evict(move)


class Written(Recording):
    """Recording that can record everything except what a test names."""

    def __init__(self, journal: Journal, clock: Callable[[], float], unwritten: Collection[str]) -> None:
        parts = Parts()
        requests = FakeRequests()
        exclusive = ExclusiveRequests(requests, clock, lambda: 10.0)
        statuses = StatusWriter(requests, exclusive, clock, completed=lambda _, status: status)
        super().__init__(
            journal,
            statuses,
            announcements=Announcements(lambda _: None, lambda _: None),
            metrics=parts.metrics,
            refusals=Refusals(clock),
            seen=Map,
        )
        self._unwritten = unwritten

    async def write_down(self, step: Step, bounding: Bounding, policies: Policies) -> Held | None:
        """Return the answer that a test sets."""
        del bounding, policies
        if any(move.pod.uid in self._unwritten for move in step):
            return Held(Reason.API_UNAVAILABLE, "not written down")
        for move in step:
            self._journal.recorded(move)
        return None


class Carrying:
    """Evictions, and their follow-up."""

    def __init__(
        self,
        requests: Requests,
        may_evict: MayEvict = lambda _: None,
        clock: Callable[[], float] | None = None,
        unwritten: Collection[str] = (),
    ) -> None:
        clock = clock or asyncio.get_running_loop().time
        self._snapshot = ClusterSnapshot()
        self.journal, self.clock = Journal(clock), clock
        self.refusals, owners = Refusals(clock), Owners(requests, clock)
        api, recording = EvictionApi(requests), Written(self.journal, clock, unwritten)
        self.evictions = Evictions(
            api,
            owners,
            self.refusals,
            permission=Allowing(may_evict),
            journal=self.journal,
            recording=recording,
            lanes=Lanes(clock),
            notify=lambda: None,
            current=lambda: self._snapshot,
        )
        self.follow_up = FollowUp(self.evictions, owners, api, hurry=lambda _: None, notify=lambda: None, clock=clock)

    async def carry_out(self, moves: Sequence[Move], snapshot: ClusterSnapshot) -> tuple[Carried, ...]:
        """Make moves, and return their results in order."""
        tasks = self.evictions.begin(moves, self.batch(snapshot))
        return tuple([carried for task in tasks for carried in await task])

    async def ask_again(self, snapshot: ClusterSnapshot, *, wanted: bool = True) -> tuple[Carried, ...]:
        """Send due evictions again, and return their results."""
        tasks = self.follow_up.ask_again(self.batch(snapshot), lambda _: wanted)
        return tuple([carried for task in tasks for carried in await task])

    async def look_after(self, snapshot: ClusterSnapshot) -> None:
        """Look up late replacements."""
        for task in self.follow_up.look_after(snapshot):
            await task

    def update(self, snapshot: ClusterSnapshot) -> tuple[Ended, ...]:
        """Apply the watched state. Every Ready replacement counts as an improvement."""
        self.journal.ledger, ended = self.journal.ledger.updated(snapshot, self.clock(), lambda *_: Outcome.IMPROVED)
        return ended

    def batch(self, snapshot: ClusterSnapshot) -> Batch:
        """Return the common data of moves that are chosen now. The watched state stays the same until the next call."""
        self._snapshot = snapshot
        policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
        return self.evictions.batch(snapshot, PlannedFor(Map({"default": policy}), {}, 0, 0.0), Bounding())

    @property
    def in_flight(self) -> Ledger:
        """The moves in flight."""
        return self.journal.ledger

    @property
    def stages(self) -> list[MovePhase]:
        """Return the stage of each move."""
        return [flight.phase for flight in self.in_flight.in_flight]


def results(carried: tuple[Carried, ...]) -> list[EvictionResult | Reason]:
    return [each.result.result if isinstance(each.result, Answer) else each.result.reason for each in carried]


Look = Callable[[], tuple[ClusterSnapshot, list[Pod]]]


def two_deployments(sandbox: Sandbox, namespace: str) -> Look:
    """Create web-0 and web-1 with three Ready pods each; the returned function returns their current state."""
    names = ("web-0", "web-1")
    for name in names:
        create_deployment(sandbox, namespace, deployment(name, replicas=3))
    for name in names:
        wait_for_ready_pods(sandbox, namespace, name, 3)

    def is_updated(name: str) -> bool:
        status = sandbox.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")["status"]
        return bool(status.get("updatedReplicas") == 3)

    wait_until(lambda: all(map(is_updated, names)), "the Deployments' statuses")

    def look() -> tuple[ClusterSnapshot, list[Pod]]:
        snapshot = take_snapshot(sandbox)
        found = [each for key, each in snapshot.pods.items() if key.namespace == namespace]
        return snapshot, sorted(found, key=lambda each: each.name)

    return look


@asynccontextmanager
async def counted_requests(sandbox: Sandbox) -> AsyncIterator[Counted]:
    async with requests_to(sandbox.kubeconfig) as requests:
        yield Counted(requests)


@contextmanager
def without_controllers(sandbox: Sandbox) -> Iterator[None]:
    """Stop all controllers while the context lasts."""
    sandbox.freeze_component(CONTROLLER_MANAGER)
    try:
        yield
    finally:
        sandbox.thaw_component(CONTROLLER_MANAGER)
