"""Nothing is evicted for a changed policy or pod, and each eviction is recorded before and counted after."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import msgspec
import pytest
from aiohttp import web
from immutables import Map

from respread.api.decoding import decode_policy
from respread.api.fields import LabelSelector
from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.api.record import Recorded
from respread.api.status import PolicyStatus, Summary
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod, WorkloadName
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import CLUSTER_POLICIES, NAMESPACED_POLICIES, PolicyObject
from respread.controller.acting import Acting, put_together
from respread.controller.announcements import Announcements
from respread.controller.evictions import Batch
from respread.controller.follow_up import LATE_SECONDS, OWED_SECONDS, UNANSWERED_SECONDS
from respread.controller.observation import ask_again
from respread.controller.permission import CONFIRM_SECONDS, Leading
from respread.controller.records.history import History
from respread.controller.records.journal import Journal
from respread.controller.records.status_writer import Wanted
from respread.eviction.answers import Answer
from respread.eviction.limiter import Limiters, bounding
from respread.eviction.owners.last_look import FRESH_SECONDS
from respread.holds.backoff import Breakers
from respread.holds.refusals import PAUSE
from respread.kube.events import Event
from respread.moves.entry import UNCONFIRMED_SECONDS, Outcome
from respread.planning.plan import Move
from tests.eviction_moves import SPEC, move
from tests.informer_parts import Parts
from tests.integration.stub_api_server import Answering, StubApiServer, answering, dropping, hanging
from tests.spreads import spread_of
from tests.virtual_time import until
from tests.worlds import NOW, cluster, constraint, node, pod, pods, spec

A, B = pod("a", "node-1", SPEC), pod("b", "node-1", SPEC)
EVICTION = "/pods/a/eviction"
BUDGET = PodDisruptionBudget(
    namespace="default", name="web", selector=LabelSelector(match_labels=Map(app="web")), disruptions_allowed=1
)


def policy(generation: int = 1, name: str = "default", **spec: Any) -> Policy:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation}
    return decode_policy("ClusterRebalancePolicy", {"metadata": metadata, "spec": {"mode": "Enforce", **spec}})


def pods_with(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the list of both pods, with these specs."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
    metadata = {"namespace": "default", "labels": {"app": "web"}, "ownerReferences": [owner]}
    listed = [
        {
            "metadata": {"name": each.name, "uid": each.uid, **metadata},
            "spec": {"nodeName": "node-1", **spec},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for each in (A, B)
    ]
    return {"metadata": {}, "items": listed}


def disrupted(is_so: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "DisruptionTarget", "status": is_so}]}}


class Cluster:
    """Two pods of a ReplicaSet, one policy, and an API server with them."""

    def __init__(self, present: Policy, *others: Policy) -> None:
        self.present = present
        """The watched policy."""
        self.others = others
        self.generation = present.generation
        """Changes of the policy in the API server."""
        self.seconds = 1000.0
        self.leads = True
        self.events: list[Event] = []
        self.parts = Parts()
        self.stub = StubApiServer()
        self.snapshot: ClusterSnapshot = cluster([node("node-1", "a")], [A, B])
        self.replica_set: dict[str, Any] = {
            "metadata": {"name": "web", "uid": "uid-web", "generation": 1},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}},
            },
            "status": {"observedGeneration": 1, "replicas": 2},
        }
        self.stub.on("GET", CLUSTER_POLICIES.path, self._policies)
        self.stub.on("GET", self.own_policies("default"), answering({"metadata": {}, "items": []}))
        self.stub.on("GET", "/replicasets/web", answering(self.replica_set))
        self.stub.on("GET", "/namespaces/default/pods", answering(pods_with({})))
        for rules in ("limitranges", "resourcequotas"):
            self.stub.on("GET", f"/namespaces/default/{rules}", answering({"metadata": {}, "items": []}))
        self.stub.on("POST", "/clusterrebalancepolicyrecords", answering({}, status=201))
        self.stub.on("PATCH", "/uid-default", answering({}))
        self.stub.on("PATCH", "/status", answering({}))
        self.stub.on("POST", EVICTION, answering({"kind": "Status", "status": "Success"}, status=201))

    def own_policies(self, namespace: str) -> str:
        return NAMESPACED_POLICIES.path_in_namespace.format(namespace=namespace)

    async def _policies(self, _: web.Request) -> web.StreamResponse:
        generations = {"default": self.generation} | {each.object_name: each.generation for each in self.others}
        items = [
            {"metadata": {"name": name, "uid": f"uid-{name}", "generation": generation}}
            for name, generation in generations.items()
        ]
        return web.json_response({"metadata": {}, "items": items})

    def evict(self, *others: Move) -> tuple[bool, History]:
        """Make the moves of pod a and others; return whether all were made, and the counts."""
        return self.make(move(A), *others)

    def make(self, *moves: Move) -> tuple[bool, History]:
        """Make moves; return whether all were made, and the counts."""

        async def scenario() -> tuple[bool, History]:
            async with self.acting() as acting:
                tasks = acting.evictions.begin(moves, self.batch(acting, moves))
                carried = [each for task in tasks for each in await task]
                made = [isinstance(each.result, Answer) and each.result.may_have_evicted for each in carried]
                return all(made), acting.journal.history

        return asyncio.run(scenario())

    def batch(self, acting: Acting, moves: Sequence[Move]) -> Batch:
        """Return the batch for the moves."""
        policies = self.parts.informers.policies.policies
        bound = bounding(moves, Limiters().of(policies), self.snapshot)
        return acting.evictions.batch(self.snapshot, acting.permission.planned_for(policies, self.seconds), bound)

    async def give_up_on(self, acting: Acting, moves: Sequence[Move]) -> None:
        """Make moves, and let so much time pass that those without an answer count as not made."""
        await asyncio.gather(*acting.evictions.begin(moves, self.batch(acting, moves)))
        self.seconds += UNCONFIRMED_SECONDS
        ledger, _ = acting.journal.ledger.updated(self.snapshot, self.seconds, lambda *_: Outcome.IMPROVED)
        acting.journal.followed(ledger, self.snapshot)

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[Acting]:
        """Yield the parts that act through the API server."""
        self.parts.informers.state.apply("pods", self.snapshot.pods.items())
        self.parts.informers.policies.apply(
            (ObjectKey("", each.object_name), PolicyObject(each, PolicyStatus()))
            for each in (self.present, *self.others)
        )
        async with self.stub.running() as requests:
            acting = put_together(
                requests,
                self.parts.informers,
                Leading(lambda: self.leads, lambda: 1),
                Journal(lambda: self.seconds, NOW.timestamp),
                announcements=Announcements(self.events.append, lambda _: self.present),
                metrics=self.parts.metrics,
            )
            try:
                yield acting
            finally:
                await acting.aclose()

    @property
    def asked(self) -> list[str]:
        """Return the modifying requests in order."""
        return [f"{method} {path.rpartition('/')[2]}" for method, path in self.stub.requests if method != "GET"]

    def counted(self, result: str) -> float | None:
        labels = {"policy_namespace": "", "policy": "default", "namespace": "default", "result": result}
        return self.parts.registry.get_sample_value("respread_evictions_total", labels)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/namespaces/default/pods", {}),
        ("/namespaces/default/pods", {"metadata": {}, "items": [{}]}),
        ("/namespaces/default/pods", pods_with({"containers": "none"})),
        ("/namespaces/default/pods", pods_with({"containers": [{"resources": {"requests": 7}}]})),
        ("/namespaces/default/limitranges", {"items": 1}),
        ("/namespaces/default/resourcequotas", {"items": [{}]}),
    ],
    ids=str,
)
def test_a_malformed_answer_holds_the_move(path: str, answer: dict[str, Any]) -> None:
    world = Cluster(policy())
    world.stub.on("GET", path, answering(answer))
    made, _ = world.evict()
    assert not made
    assert world.asked == []


def test_a_move_is_recorded_then_made_then_counted() -> None:
    world = Cluster(policy(limits={"perHour": 5}))
    made, history = world.evict()
    assert made
    assert world.asked == ["POST clusterrebalancepolicyrecords", "PATCH status", "POST eviction"]
    ahead = json.loads(next(body for body in world.stub.bodies if body is not None)["record"])
    assert [each["pod"] for each in ahead["movesInFlight"]] == ["a"]
    assert sum(each["evictions"] for each in ahead["recentEvictions"]) == 1
    assert history.history.count_in_last_hour("default", 0) == 1  # not twice, although the move was also recorded
    assert history.evicted == {"default": 1}
    assert history.standings.served == Map(default=1)
    assert world.counted("Evicted") == 1
    read = {path for _, path in world.stub.requests if path.endswith("policies")}
    assert read == {CLUSTER_POLICIES.path, world.own_policies("default")}, "those that may apply"


@pytest.mark.parametrize(("limits", "records"), [({"perHour": 5}, 2), ({"inFlight": 5}, 1)])
def test_a_move_is_recorded_for_every_policy_that_counts_it_within_an_hour(
    limits: dict[str, Any], records: int
) -> None:
    """After a crash, the next leader counts it for both."""
    world = Cluster(policy(limits={"perHour": 5}), policy(name="another", limits=limits))
    made, _ = world.evict()
    assert made
    assert world.asked[: world.asked.index("POST eviction")].count("POST clusterrebalancepolicyrecords") == records
    counted = [json.loads(body["record"])["recentEvictions"] for body in world.stub.bodies if "record" in (body or {})]
    assert [sum(each["evictions"] for each in minutes) for minutes in counted] == [1] * records


@pytest.mark.parametrize("answer", [answering({"message": "no"}, status=500), answering("not now", status=503)])
def test_a_move_that_can_t_be_recorded_is_not_made(answer: Answering) -> None:
    world = Cluster(policy())
    world.stub.on("POST", "/clusterrebalancepolicyrecords", answer)
    made, history = world.evict()
    assert not made
    assert "POST eviction" not in world.asked
    assert history.evicted == {}


@pytest.mark.parametrize(
    ("generation", "status", "words"),
    [(2, 200, "the policies have changed, and the watch has not brought it yet"), (1, 500, "etcd is away")],
)
def test_nothing_is_evicted_while_policies_have_changed_without_an_event_or_can_t_be_read(
    generation: int, status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = Cluster(policy())
    world.generation = generation
    if status != 200:
        world.stub.on("GET", CLUSTER_POLICIES.path, answering({"message": "etcd is away"}, status=status))
    made, _ = world.evict()
    assert not made
    assert world.asked == []
    assert words in caplog.text
    assert "Eviction held back" in caplog.text


def test_a_policy_that_changes_without_an_event_stops_the_wave() -> None:
    """The policies are read again while the eviction is prepared."""
    world = Cluster(policy())

    async def slowly(_: web.Request) -> web.StreamResponse:
        world.generation = 2
        world.seconds += CONFIRM_SECONDS
        return web.json_response({})

    world.stub.on("POST", "/clusterrebalancepolicyrecords", slowly)
    made, history = world.evict()
    assert not made
    assert world.asked == ["POST clusterrebalancepolicyrecords", "PATCH status"]
    assert history.evicted == {}


def test_nothing_is_sent_after_a_change_while_the_request_was_prepared() -> None:
    """By the time of the answers to the last look, another replica leads."""
    world = Cluster(policy())
    read: list[str] = []

    async def recorded(_: web.Request) -> web.StreamResponse:
        world.seconds += 2 * FRESH_SECONDS  # so that nothing is read from a cache
        for path in ("/replicasets/web", "/pods/a"):
            world.stub.on("GET", path, lost)
        return web.json_response({})

    async def lost(request: web.Request) -> web.StreamResponse:
        read.append(request.path)
        world.leads = False
        found = pods_with({})["items"][0] if request.path.endswith("/pods/a") else world.replica_set
        return web.json_response(found)

    world.stub.on("PATCH", "/status", recorded)
    made, history = world.evict()
    assert read
    assert not made
    assert world.asked == ["POST clusterrebalancepolicyrecords", "PATCH status"]
    assert history.evicted == {}


@pytest.mark.parametrize(
    "present",
    [None, msgspec.structs.replace(A, uid="of another"), msgspec.structs.replace(A, deletion_timestamp=NOW)],
    ids=["gone", "replaced", "terminating"],
)
def test_nothing_is_sent_for_a_pod_that_is_not_there_any_more(present: Pod | None) -> None:
    """The API server would take a disruption off its budget first."""
    world = Cluster(policy())

    async def recorded(_: web.Request) -> web.StreamResponse:
        world.parts.informers.state.apply("pods", [(A.key, present)])
        return web.json_response({})

    world.stub.on("PATCH", "/status", recorded)
    made, _ = world.evict()
    assert not made
    assert world.asked == ["POST clusterrebalancepolicyrecords", "PATCH status"]


@pytest.mark.parametrize(
    ("rule", "selects", "is_made"),
    [("Required", "", False), ("Optional", "", True), ("Required", "web", True), ("Required", "api", False)],
)
def test_nothing_is_sent_for_a_pod_whose_required_budget_does_not_select_it_any_more(
    rule: str, selects: str, *, is_made: bool
) -> None:
    world = Cluster(policy(victims={"budget": rule}))
    world.snapshot = cluster([node("node-1", "a")], [A, B], poddisruptionbudgets=[BUDGET])
    if selects:  # else the live state of the parts, unlike the plan's snapshot, has no budget
        now = msgspec.structs.replace(BUDGET, selector=LabelSelector(match_labels=Map(app=selects)))
        world.parts.informers.state.apply("poddisruptionbudgets", [(now.key, now)])
    made, _ = world.evict()
    assert made is is_made
    assert ("POST eviction" in world.asked) is is_made


@pytest.mark.parametrize(
    ("least", "observed", "is_made"), [(2, 1, True), (3, 1, False), (2, 0, False), (2, None, False)]
)
def test_nothing_is_sent_for_a_workload_that_is_too_small_or_has_not_observed_its_spec(
    least: int, observed: int | None, *, is_made: bool
) -> None:
    world = Cluster(policy(victims={"minReplicas": least}))
    world.replica_set["status"] = {"replicas": 2} | ({} if observed is None else {"observedGeneration": observed})
    made, _ = world.evict()
    assert made is is_made


def pause(acting: Acting) -> None:
    failed = Breakers().failed("default", WorkloadName("Deployment", "default", "api"), 1, NOW.timestamp())
    acting.journal.history.breakers = failed
    assert acting.next_end(acting.journal.moment()) == acting.journal.clock() + 60


@pytest.mark.parametrize(
    ("reason", "before", "sent"),
    [(Reason.PAUSED, 0, 0), (Reason.PAUSED, 1, 1), (Reason.PAUSED, 2, 2), (Reason.PAUSED, 3, 4)]
    + [(Reason.NOT_LEADING, before, before) for before in range(4)],
)
async def test_a_paused_policy_sends_only_the_rest_of_a_begun_step_and_a_deposed_leader_nothing(
    reason: Reason, before: int, sent: int
) -> None:
    """Before that, so many requests arrived. There are two dry runs, then two evictions."""
    world, step = Cluster(policy(limits={"failuresInARow": 1})), [move(each, component=1) for each in (A, B)]
    arrived: list[str] = []
    async with world.acting() as acting:

        async def accepted(request: web.Request) -> web.StreamResponse:
            arrived.append(request.path)
            if len(arrived) == before:
                change()
            return web.json_response({}, status=201)

        def change() -> None:
            if reason is Reason.PAUSED:
                pause(acting)
            world.leads = reason is Reason.PAUSED

        for each in step:
            world.stub.on("POST", f"/pods/{each.pod.name}/eviction", accepted)
        if not before:
            change()
        await asyncio.gather(*acting.evictions.begin(step, world.batch(acting, step)))
    held = acting.holds.refusals.why_not_chosen(step[1])
    assert (held and held.reason, len(arrived)) == (None if sent == 4 else reason, sent)
    assert before or not world.asked


@pytest.mark.parametrize(
    ("status", "reason", "leads", "pods"),
    [
        (429, Reason.HELD_BY_BUDGET, True, (A,)),
        (429, Reason.HELD_BY_BUDGET, True, (A, B)),  # after a dry run
        (404, None, True, (A,)),
        (201, Reason.NOT_LEADING, False, (A,)),
    ],
)
async def test_a_refused_pod_is_not_asked_for_again_at_once(
    status: int, reason: Reason | None, pods: tuple[Pod, ...], *, leads: bool
) -> None:
    world, step = Cluster(policy(limits={"perHour": 5})), [move(each, component=1) for each in pods]
    refusal = {
        "kind": "Status",
        "message": "no",
        "details": {"kind": "pods", "causes": [{"reason": "DisruptionBudget"}]},
    }
    world.stub.on("POST", EVICTION, answering(refusal, status=status))
    async with world.acting() as acting:
        told = Wanted(world.present, PolicyStatus(summary=Summary(evicted=1)), Recorded(), PolicyStatus())
        await acting.statuses.write([told], world.seconds)
        assert not acting.statuses.any_due([world.present], world.seconds)
        world.leads = leads
        await asyncio.gather(*acting.evictions.begin(step, world.batch(acting, step)))
    held = acting.holds.refusals.why_not_chosen(step[0])
    assert (held and held.reason) is reason
    is_recorded = leads and len(pods) == 1
    assert acting.statuses.any_due([world.present], world.seconds) is is_recorded, "its record still counts the move"
    world.seconds += PAUSE.longest_seconds
    assert (acting.holds.refusals.why_not(A, ()) is not None) is (status == 429), "until a budget changes"
    history = acting.journal.history
    assert (history.evicted, history.history.minutes.get("default") or None) == ({}, None)
    assert world.counted("HeldByBudget") == (1 if status == 429 and len(pods) == 1 else None)


@pytest.mark.parametrize(("status", "evicted"), [(429, []), (404, ["b"])])
def test_a_step_ends_when_its_first_pod_is_refused_and_goes_on_when_it_has_gone(
    status: int, evicted: list[str]
) -> None:
    """Nothing stood in the way of both by the last look and a dry run."""
    world = Cluster(policy())
    sent: list[str] = []

    async def refused(request: web.Request) -> web.StreamResponse:
        details = {"kind": "pods", "causes": [{"reason": "DisruptionBudget"}]}
        return web.json_response({"kind": "Status", "details": details}, status=201 if request.query else status)

    async def accepted(request: web.Request) -> web.StreamResponse:
        if not request.query:
            sent.append("b")
        return web.json_response({}, status=201)

    world.stub.on("POST", EVICTION, refused)
    world.stub.on("POST", "/pods/b/eviction", accepted)
    made, history = world.make(*(move(each, component=1) for each in (A, B)))
    assert not made
    assert sent == evicted
    assert history.evicted == ({"default": 1} if evicted else {})


def test_a_pod_that_was_read_long_ago_is_read_again_before_its_dry_run() -> None:
    """By then it is gone, and the API server would say so only after it has counted a disruption."""
    world = Cluster(policy())

    async def slowly(_: web.Request) -> web.StreamResponse:
        world.seconds += FRESH_SECONDS
        return web.json_response({}, status=201)

    world.stub.on("POST", EVICTION, slowly)
    made, _ = world.make(*(move(each, component=1) for each in (A, B)))
    assert not made
    assert world.asked == ["POST eviction"]  # a dry run of the first
    assert ("GET", "/api/v1/namespaces/default/pods/b") in world.stub.requests


async def test_a_pod_is_read_unless_it_was_there_when_its_controller_was_read() -> None:
    world, other, listed = Cluster(policy()), msgspec.structs.replace(A, uid="of another"), pods_with({})
    listed["items"][1] |= {"status": {"phase": "Failed"}}
    world.stub.on("GET", "/namespaces/default/pods", answering(listed))
    async with world.acting() as acting:
        owners = world.batch(acting, ()).owners
        await owners.why_not_at_rest(move(A), policy().spec.victims, world.snapshot, acting.journal.ledger)
        assert [owners.has_read(each) for each in (A, B, other)] == [True, False, False]


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_step_is_made_if_its_budget_has_room_for_all_of_it(allowed: int) -> None:
    world = Cluster(policy())
    budget = msgspec.structs.replace(BUDGET, disruptions_allowed=allowed)
    world.snapshot = cluster([node("node-1", "a")], [A, B], poddisruptionbudgets=[budget])
    world.stub.on("POST", "/pods/b/eviction", answering({}, status=201))
    made, _ = world.make(*(move(each, component=1) for each in (A, B)))
    assert made is (allowed == 2)
    assert made is bool(world.asked)


@pytest.mark.parametrize(
    ("others", "there", "seconds", "asked"),
    [
        (2, [A, B], UNANSWERED_SECONDS, 2),
        (2, [B], UNANSWERED_SECONDS, 1),
        (1, [A, B], UNANSWERED_SECONDS, 1),
        (2, [A, B], UNANSWERED_SECONDS - 0.1, 1),
    ],
)
async def test_an_unanswered_eviction_is_sent_again_while_its_pod_is_there_and_its_group_violated(
    others: int, there: list[Pod], seconds: float, asked: int
) -> None:
    world = Cluster(policy(limits={"failuresInARow": 1}))
    world.stub.on("POST", EVICTION, dropping)
    nodes = [node("node-1", "a"), node("node-2", "b")]
    spread = spread_of(cluster(nodes, pods({"node-1": others}, spec(constraint()))))
    async with world.acting() as acting:
        moves = [move(A, groups=tuple(spread.groups))]
        await asyncio.gather(*acting.evictions.begin(moves, world.batch(acting, moves)))
        assert acting.next_look() == world.seconds + UNANSWERED_SECONDS
        assert acting.uncertain  # the Lease is not released
        pause(acting)  # which is for what is not begun
        world.seconds += seconds
        ask_again(acting, cluster(nodes, there), spread, world.parts.informers.policies.policies)
        await until(lambda: not acting.lanes.moves())
        looked_at_in = acting.next_look() - world.seconds
        assert (len(acting.journal.ledger), looked_at_in) == (1, UNANSWERED_SECONDS if asked == 2 else 1)
    assert world.asked.count("POST eviction") == asked


@pytest.mark.parametrize(
    ("found", "is_chosen_again", "counted", "doubts"),
    [
        (answering(pods_with({})["items"][0]), False, 0, False),
        (answering(pods_with({})["items"][1]), False, 1, False),  # another pod has its name
        (answering({}, status=404), False, 1, False),
        (answering({"kind": "Status", "metadata": {}}, status=500), False, 1, True),
        (dropping, False, 1, True),
        (answering(pods_with({})["items"][0]), True, 1, True),
        (answering({"metadata": {"name": "a", "uid": A.uid, "deletionTimestamp": "x"}}), False, 1, False),
        (answering({"metadata": {"name": "a", "uid": A.uid}, **disrupted("True")}), False, 1, False),
        (answering({"metadata": {"name": "a", "uid": A.uid}, **disrupted("False")}), False, 0, False),
    ],
    ids=["there", "replaced", "gone", "unread", "lost", "chosen again", "going", "disrupted", "no longer"],
)
async def test_an_eviction_without_an_answer_is_judged_by_its_pod(
    found: Answering, *, is_chosen_again: bool, counted: int, doubts: bool
) -> None:
    world, moves = Cluster(policy(limits={"perHour": 5})), [move(A)]
    world.stub.on("POST", EVICTION, dropping)
    async with world.acting() as acting:
        await world.give_up_on(acting, moves)
        world.seconds = acting.journal.ledger.next_due()
        assert acting.next_look() == world.seconds

        async def read(request: web.Request) -> web.StreamResponse:
            if is_chosen_again:
                acting.lanes.start(tuple(moves), asyncio.sleep(0.1))
            return await found(request)

        world.stub.on("GET", "/pods/a", read)
        told = Wanted(world.present, PolicyStatus(summary=Summary(evicted=1)), Recorded(), PolicyStatus())
        await acting.statuses.write([told], world.seconds)
        world.parts.informers.changes.take()
        await asyncio.gather(*acting.follow_up.find_out())
        assert acting.follow_up.find_out() == [], "its pod was read just now"
        assert ("evictions" in world.parts.informers.changes.take()) is not doubts
        assert acting.statuses.any_due([world.present], world.seconds) is not doubts
        count = acting.journal.history.history.count_in_last_hour("default", NOW.timestamp())
    assert (count, acting.journal.doubts(moves[0])) == (counted, doubts)


@pytest.mark.parametrize(("replicas", "wanted"), [(2, True), (1, False)])
async def test_a_controller_is_asked_whether_it_wants_a_replacement_that_is_late(
    replicas: int, *, wanted: bool
) -> None:
    world, moves = Cluster(policy()), [move(A)]
    gone = cluster([node("node-1", "a")], [B])
    async with world.acting() as acting:
        await asyncio.gather(*acting.evictions.begin(moves, world.batch(acting, moves)))
        ledger, _ = acting.journal.ledger.updated(gone, world.seconds, lambda *_: Outcome.IMPROVED)
        acting.journal.followed(ledger, gone)
        world.replica_set["spec"]["replicas"] = replicas
        assert acting.follow_up.look_after(gone) == []
        assert acting.next_look() == acting.journal.ledger.next_deadline() < inf
        world.seconds += LATE_SECONDS
        world.parts.informers.changes.take()
        await asyncio.gather(*acting.follow_up.look_after(gone))
        assert acting.follow_up.look_after(gone) == [], "it was asked just now"
        assert ("evictions" in world.parts.informers.changes.take()) is not wanted
    assert [each.wanted for each in acting.journal.ledger.in_flight] == [wanted]


async def test_an_eviction_counts_for_an_hour_when_its_move_is_over() -> None:
    world, moves = Cluster(policy(limits={"perHour": 5})), [move(A)]
    async with world.acting() as acting:
        await asyncio.gather(*acting.evictions.begin(moves, world.batch(acting, moves)))
        acting.journal.followed(acting.journal.ledger.without(moves[0]), world.snapshot)
    assert acting.journal.history.history.count_in_last_hour("default", NOW.timestamp()) == 1


async def test_an_eviction_that_is_being_sent_is_not_sent_again() -> None:
    world, moves = Cluster(policy()), [move(A)]
    again: list[object] = []
    async with world.acting() as acting:
        batch = world.batch(acting, moves)

        async def slowly(_: web.Request) -> web.StreamResponse:
            world.seconds += 2 * UNANSWERED_SECONDS
            again.extend(acting.follow_up.ask_again(batch, lambda _: True))
            return web.json_response({}, status=201)

        world.stub.on("POST", EVICTION, slowly)
        await asyncio.gather(*acting.evictions.begin(moves, batch))
        assert acting.journal.history.evicted == {"default": 1}
    assert again == []


async def test_a_move_that_is_not_sent_when_the_operator_stops_counts_no_longer() -> None:
    world, moves = Cluster(policy(limits={"perHour": 5})), [move(A)]
    world.stub.on("POST", "/clusterrebalancepolicyrecords", hanging)
    async with world.acting() as acting:
        (task,) = acting.evictions.begin(moves, world.batch(acting, moves))
        await until(lambda: world.asked)
        await acting.aclose()
    assert task.cancelled()
    count = acting.journal.history.history.count_in_last_hour("default", NOW.timestamp())
    assert (count, acting.journal.doubts(moves[0]), world.counted("Unknown")) == (0, False, None)


async def test_a_doubtful_move_that_is_chosen_again_and_held_stays_doubtful() -> None:
    world, moves = Cluster(policy(limits={"perHour": 5})), [move(A)]
    world.stub.on("POST", EVICTION, dropping)
    async with world.acting() as acting:
        await world.give_up_on(acting, moves)
        world.leads = False
        await asyncio.gather(*acting.evictions.begin(moves, world.batch(acting, moves)))
    count = acting.journal.history.history.count_in_last_hour("default", NOW.timestamp())
    assert (count, acting.journal.doubts(moves[0])) == (1, True)


@pytest.mark.parametrize("is_controller", [True, False])
def test_any_owner_of_a_controller_that_is_not_known_holds_the_move(*, is_controller: bool) -> None:
    world = Cluster(policy())
    known: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-deployment"}
    owners = [known, {"apiVersion": "example.org/v1", "kind": "Fleet", "name": "web", "uid": "uid-fleet"}]
    owners[is_controller]["controller"] = True
    world.replica_set["metadata"] |= {"ownerReferences": owners}
    deployment = {**world.replica_set, "metadata": {"name": "web", "uid": "uid-deployment", "generation": 1}}
    deployment["status"] = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}
    world.stub.on("GET", "/deployments/web", answering(deployment))
    made, _ = world.evict()
    assert not made
    assert world.asked == []
    owners.pop()
    assert world.evict()[0], "the known one alone holds nothing"
    top = "uid-web" if is_controller else "uid-deployment"
    assert [each.regarding.uid for each in world.events] == ["uid-default", top, A.uid]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"b": 409, "c": 409}, [False, True, True]),
        ({"b": 409, "c": 404}, [False, True]),  # it has gone by itself
        ({"b": 201, "c": 409}, [False, False, True]),
        ({"b": 504, "c": 409}, [False, False, True]),  # it may have been made
    ],
)
async def test_all_that_are_refused_after_the_first_of_a_step_are_owed(
    answers: dict[str, int], expected: list[bool]
) -> None:
    third = msgspec.structs.replace(A, name="c", uid="uid-c")
    world = Cluster(policy())
    world.snapshot = cluster([node("node-1", "a")], [A, B, third])
    world.parts.informers.state.apply("pods", [(third.key, third)])
    listed = pods_with({})
    listed["items"].append(
        {**listed["items"][0], "metadata": {**listed["items"][0]["metadata"], "name": "c", "uid": "uid-c"}}
    )
    world.stub.on("GET", "/namespaces/default/pods", answering(listed))
    world.replica_set["spec"]["replicas"] = world.replica_set["status"]["replicas"] = 3

    async def refused(request: web.Request) -> web.StreamResponse:
        status = 201 if request.query else answers[request.path.split("/")[-2]]
        return web.json_response({"kind": "Status", "message": "no", "details": {"kind": "pods"}}, status=status)

    for name in answers:
        world.stub.on("POST", f"/pods/{name}/eviction", refused)

    async with world.acting() as acting:
        step = [move(each, component=1) for each in (A, B, third)]
        await asyncio.gather(*acting.evictions.begin(step, world.batch(acting, step)))
        assert acting.follow_up.next_ask() == world.seconds + OWED_SECONDS, "the first that is due"
    ledger = acting.journal.ledger
    assert [[each.is_owed for each in those] for those in (ledger.in_flight, ledger.under_way)] == [expected, expected]


async def test_an_owed_eviction_counts_when_it_is_made() -> None:
    """The second eviction of a step of two is refused at first."""
    world = Cluster(policy(limits={"perHour": 5}))
    statuses = [201, 409]

    async def refused_once(request: web.Request) -> web.StreamResponse:
        status = 201 if request.query else statuses.pop()
        return web.json_response({"kind": "Status", "message": "it has changed"}, status=status)

    world.stub.on("POST", "/pods/b/eviction", refused_once)
    async with world.acting() as acting:
        step = [move(each, component=1) for each in (A, B)]
        batch = world.batch(acting, step)
        await asyncio.gather(*acting.evictions.begin(step, batch))
        counts = [acting.journal.history.history.count_in_last_hour("default", 0)]
        assert [each.is_owed for each in acting.journal.ledger.in_flight if each.move is step[1]] == [True]
        assert acting.follow_up.next_ask() == world.seconds + OWED_SECONDS
        world.seconds += OWED_SECONDS
        await asyncio.gather(*acting.follow_up.ask_again(batch, lambda _: True))
        assert [each.is_owed for each in acting.journal.ledger.in_flight if each.move is step[1]] == [False]
    assert [*counts, acting.journal.history.history.count_in_last_hour("default", 0)] == [2, 2]


@pytest.mark.parametrize("unread", ["limitranges", "resourcequotas"])
def test_rules_of_a_namespace_that_can_t_be_read_are_requested_once_for_all_moves(unread: str) -> None:
    pods = [pod(f"p-{number}", "node-1", SPEC) for number in range(20)]
    world = Cluster(policy())
    world.snapshot = cluster([node("node-1", "a")], [A, B, *pods])
    world.stub.on("GET", f"/namespaces/default/{unread}", answering({"message": "no"}, status=500))
    made, _ = world.evict(*map(move, pods))
    assert not made
    read = [path.rpartition("/")[2] for _, path in world.stub.requests if "policies" not in path]
    assert sorted(read) == ["limitranges", "resourcequotas"]


ELSEWHERE = pod("c", "node-1", SPEC, namespace="greedy")


@pytest.mark.parametrize("answer", [hanging, answering({"message": "too large"}, status=500)])
def test_a_namespace_whose_policies_can_t_be_read_holds_only_its_own_moves(
    answer: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    """A tenant with thousands of large policies makes reading them slow or impossible."""
    world = Cluster(policy())
    world.snapshot = cluster([node("node-1", "a")], [A, B, ELSEWHERE])
    world.stub.on("GET", world.own_policies("greedy"), answer)
    started = time.monotonic()
    made, history = world.evict(move(ELSEWHERE))
    assert time.monotonic() - started < 2.5  # shorter than the timeout
    assert not made
    assert world.asked == ["POST clusterrebalancepolicyrecords", "PATCH status", "POST eviction"]
    assert history.evicted == {"default": 1}
    for words in ("Nothing is evicted for now", "'ApiUnavailable'", "the policies of greedy could not be read yet"):
        assert words in caplog.text
