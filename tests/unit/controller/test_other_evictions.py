"""Respread recognizes and names other clients that evict pods, and leaves their workloads alone for some time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from math import inf
from typing import Any

import msgspec
import pytest

from respread.api.reasons import Reason
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Namespace, Node, Taint
from respread.cluster.pod import Pod, WorkloadName
from respread.cluster.state import ClusterState
from respread.controller.records.history import History
from respread.controller.reporter import outcomes_of
from respread.holds.holds import Holds
from respread.holds.other_evictions import (
    EVICTED,
    FORGOTTEN,
    JUDGED_AFTER,
    LONGEST_ROUND,
    MOST_WAITING,
    ROUND,
    WAIT,
    Departures,
    EvictorNames,
    OtherEvictions,
)
from respread.kube.events import REPORTING_CONTROLLER
from respread.kube.requests import NoResponseError, Response
from respread.moves.entry import Outcome
from respread.moves.ledger import Ledger
from respread.timing import ClockReading
from tests.eviction_moves import move
from tests.fake_requests import FakeRequests
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import default_policy, reconciled_of
from tests.worlds import NOW, constraint, node, pod, spec, taint

SPREAD = spec(constraint())
FIRST_WAIT, LONGEST_WAIT = (timedelta(seconds=seconds) for seconds in WAIT)


class Cluster:
    """A workload of four pods on two nodes, which the control loop observes from time to time."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.state.replace("nodes", [node("a1", "a"), node("b1", "b")])
        self.pods = [pod(f"web-{number}", on, SPREAD) for number, on in enumerate(("a1", "b1", "a1", "b1"))]
        self.state.replace("pods", self.pods)
        self.counted: list[str] = []
        self.others = OtherEvictions(lambda each: self.counted.append(each.name))
        self.holds = Holds(lambda: 0.0, self.others)
        self.ledger = Ledger()
        self.now = NOW
        self.look()

    def look(self, after: timedelta = timedelta(), *, leads: bool = True) -> None:
        self.now += after
        before, now, snapshot = self.ledger, self.now.timestamp(), self.state.snapshot
        self.ledger, _ = before.updated(snapshot, now, lambda *_: Outcome.IMPROVED)
        self.holds.observe(snapshot, {}, before, self.ledger, ClockReading(0.0, now), leads=leads)

    def next_due(self) -> float:
        return self.others.next_due(ClockReading(0.0, self.now.timestamp()))

    def put(self, each: Pod) -> None:
        self.state.apply("pods", [(each.key, each)])

    def evict(self, each: Pod, disruption: str = EVICTED) -> None:
        self.put(msgspec.structs.replace(each, deletion_timestamp=self.now, disruption=disruption))

    def round(self, number: int, after: timedelta) -> None:
        """Evict a pod as another client. The control loop sees it terminating; the replacement has its name."""
        each = msgspec.structs.replace(self.pods[0], uid=f"uid-{number}")
        self.put(each)
        self.look(after)
        self.evict(each)
        self.look()
        self.look(after=JUDGED_AFTER)

    @property
    def until(self) -> timedelta:
        """Return how long the workload's only group is held after an eviction that was just judged."""
        (group,) = spread_of(self.state.snapshot).groups.values()
        held = self.others.held(group, self.now)
        if held is None:
            return timedelta()
        assert held.reason is Reason.OTHER_DESCHEDULER
        assert held.until is not None
        return held.until - self.now + JUDGED_AFTER


def test_the_wait_for_a_workload_doubles_each_time() -> None:
    cluster = Cluster()
    waits = []
    for number in range(12):
        cluster.round(number, after=cluster.until + ROUND)
        waits.append(cluster.until)
    assert waits[0] == timedelta()
    assert waits[1:6] == [FIRST_WAIT * 2**power for power in range(5)]
    assert waits[-1] == LONGEST_WAIT
    assert len(cluster.counted) == 12
    cluster.look(after=cluster.until - JUDGED_AFTER)
    assert (cluster.until, bool(cluster.others.repeated)) == (timedelta(), True)
    cluster.look(after=FORGOTTEN)
    assert not cluster.others.repeated


def test_pods_that_are_evicted_together_count_as_one_round() -> None:
    cluster = Cluster()
    for each in cluster.pods:
        cluster.evict(each)
        cluster.look(after=timedelta(seconds=3))
    cluster.look(after=JUDGED_AFTER)
    assert cluster.until == timedelta()
    assert len(cluster.counted) == 4


def test_evictions_during_the_wait_do_not_double_it() -> None:
    cluster = Cluster()
    for number in range(20):
        cluster.round(number, after=timedelta(seconds=15))
    assert cluster.until == FIRST_WAIT


def test_respreads_own_evictions_do_not_count_even_after_their_moves() -> None:
    cluster = Cluster()
    gone = cluster.pods[0]
    cluster.ledger = cluster.ledger.sent(move(gone), cluster.state.snapshot, cluster.now.timestamp())
    cluster.look()
    cluster.evict(gone)
    cluster.look()
    cluster.put(pod("web-9", "b1", SPREAD))
    cluster.look()
    assert len(cluster.ledger) == 0, "its replacement is Ready, and it still terminates"
    cluster.look(after=timedelta(minutes=1))
    cluster.evict(cluster.pods[1])
    cluster.look()
    cluster.look(after=JUDGED_AFTER)
    assert cluster.counted == [cluster.pods[1].name]


@pytest.mark.parametrize("disruption", ["", "PreemptionByScheduler", "DeletionByTaintManager", "TerminationByKubelet"])
def test_only_evictions_by_the_eviction_api_count(disruption: str) -> None:
    cluster = Cluster()
    cluster.evict(cluster.pods[0], disruption)
    cluster.look()
    cluster.look(after=JUDGED_AFTER)
    assert cluster.counted == []


@pytest.mark.parametrize(
    "leaving",
    [
        node("a1", "a", unschedulable=True),
        node("a1", "a", taints=(Taint("karpenter.sh/disrupted", "NoSchedule"),)),
        node("a1", "a", taints=(Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule", "1"),)),
        None,
    ],
    ids=["cordoned", "Karpenter", "cluster-autoscaler", "gone"],
)
def test_drains_do_not_count(leaving: Node | None) -> None:
    """The drain is recognized even if the watch shows the node after the pod."""
    cluster = Cluster()
    cluster.evict(cluster.pods[0])
    cluster.look()
    cluster.evict(cluster.pods[2])
    cluster.look(after=JUDGED_AFTER / 4)
    cluster.state.apply("nodes", [(ObjectKey("", "a1"), leaving)])
    assert cluster.next_due() == JUDGED_AFTER.total_seconds() * 3 / 4
    cluster.look(after=JUDGED_AFTER)
    assert cluster.next_due() == inf
    assert cluster.counted == []


def test_pods_that_terminate_at_the_start_of_a_term_do_not_count() -> None:
    cluster = Cluster()
    cluster.evict(cluster.pods[0])
    cluster.others = cluster.holds.others = OtherEvictions(lambda each: cluster.counted.append(each.name))
    cluster.look()
    cluster.evict(cluster.pods[1])
    cluster.look(leads=False)
    cluster.look()
    cluster.look(after=JUDGED_AFTER)
    assert cluster.counted == []


def test_the_name_of_the_evictor_is_reported_and_kept() -> None:
    cluster = Cluster()
    cluster.round(1, after=ROUND)
    cluster.round(2, after=LONGEST_WAIT / 2)
    (workload,) = cluster.others.repeated
    cluster.others.name(workload, "sigs.k8s.io.descheduler")
    cluster.round(3, after=LONGEST_WAIT / 2)
    (group,) = spread_of(cluster.state.snapshot).groups.values()
    held = cluster.others.held(group, cluster.now)
    assert held is not None
    assert held.message.startswith("sigs.k8s.io.descheduler evicts pods of ")
    cluster.state.replace("namespaces", [Namespace(name="default")])
    reconciled = reconciled_of(cluster.state.snapshot, default_policy())
    reconciled = msgspec.structs.replace(reconciled, other_evictors=cluster.others.repeated)
    said = outcomes_of([default_policy()], reconciled, History(lambda: 0.0))["default"].other_evictions
    assert said == ("ReplicaSet/web in default (by sigs.k8s.io.descheduler)",)


def test_an_evictor_that_never_pauses_is_recognized_after_a_minute() -> None:
    """Its evictions would be one round for ever, and nobody would be told that the two work against each other."""
    cluster = Cluster()
    for number in range(20):
        assert (cluster.until > timedelta()) is (number > LONGEST_ROUND / timedelta(seconds=5))
        cluster.round(number, after=timedelta(seconds=5) - JUDGED_AFTER)
    assert cluster.until == FIRST_WAIT
    assert cluster.others.repeated


def test_the_wait_ends_although_the_clock_is_set_back() -> None:
    cluster = Cluster()
    cluster.now += timedelta(days=365)
    for number in range(8):
        cluster.round(number, after=cluster.until + ROUND)
    assert cluster.until == LONGEST_WAIT
    cluster.now -= timedelta(days=365)
    cluster.look()
    assert cluster.until == timedelta()
    assert not cluster.others.repeated


@pytest.mark.parametrize("changed", ["gone", "replaced", "came", "cordon"])
def test_a_leaving_node_is_waited_for_anew_with_each_pod_that_it_loses(changed: str) -> None:
    leaving, cluster, departures = node("a1", "a", taints=(taint("karpenter.sh/disrupted"),)), Cluster(), Departures()
    cluster.state.apply("nodes", [(leaving.key, leaving)])
    assert departures.observe(cluster.state.snapshot, (), NOW) == {"a1": NOW}
    later = NOW + timedelta(seconds=30)
    assert departures.observe(cluster.state.snapshot, (), later) == {"a1": NOW}
    first = cluster.pods[0]
    if changed == "cordon":
        cluster.state.apply("nodes", [(leaving.key, msgspec.structs.replace(leaving, unschedulable=True))])
    elif changed == "came":
        cluster.put(pod("web-8", "a1", SPREAD))
    else:
        elsewhere = msgspec.structs.replace(first, uid="uid-8", node_name="b1")
        cluster.state.apply("pods", [(first.key, None if changed == "gone" else elsewhere)])
    lost = changed in {"gone", "replaced"}
    assert departures.observe(cluster.state.snapshot, (), later) == {"a1": later if lost else NOW}


DESCHEDULER = {"reportingController": "sigs.k8s.io.descheduler", "reason": "PodLifeTime", "action": "Descheduled"}
UPDATER = {"reportingController": "vpa-updater", "reason": "EvictedByVPA", "note": "Pod was evicted to resize it."}
SCHEDULER = {"reportingController": "default-scheduler", "reason": "Scheduled", "note": "assigned descheduler/web-0"}
KUBELET = {"reportingController": "kubelet", "reason": "Killing", "action": "", "note": "Stopping container main"}
OURS = {"reportingController": REPORTING_CONTROLLER, "reason": "Evicted", "note": "evicted"}


class Events(FakeRequests):
    """An API server with Events about every pod."""

    def __init__(self, answer: bytes | None, status_code: int = 200) -> None:
        super().__init__()
        self._answer, self._status_code = answer, status_code
        self.asked: list[str] = []

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        assert (method, names["namespace"], path.rpartition("/")[2]) == ("GET", "default", "events")
        self.asked.append(options["query"]["fieldSelector"])
        if self._answer is None:
            raise NoResponseError("no answer", sent=True)
        return Response(status_code=self._status_code, body=self._answer)


def listed(*events: dict[str, str]) -> bytes:
    return json.dumps({"items": list(events)}).encode()


async def names_found(requests: Events, pods: int = 1) -> list[tuple[WorkloadName, str]]:
    reported: list[tuple[WorkloadName, str]] = []
    names = EvictorNames(requests, lambda workload, name: reported.append((workload, name)))
    for number in range(pods):
        names.look_for(pod(f"web-{number}", "a1", spec()))
    running = asyncio.create_task(names.run())
    await asyncio.sleep(120)
    assert running.cancel(), "it goes on until then"
    return reported


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((SCHEDULER, KUBELET, DESCHEDULER), "sigs.k8s.io.descheduler"),
        (({**UPDATER, "reportingController": "x" * 129}, DESCHEDULER), "sigs.k8s.io.descheduler"),
        (({**UPDATER, "reportingController": "red\x1b[31m"}, DESCHEDULER), "sigs.k8s.io.descheduler"),
        ((UPDATER,), "vpa-updater"),
        ((SCHEDULER, KUBELET, OURS), None),
        ((), None),
    ],
)
async def test_the_reporter_of_an_eviction_event_is_named(
    events: tuple[dict[str, str], ...], expected: str | None
) -> None:
    requests = Events(listed(*events))
    assert [name for _, name in await names_found(requests)] == ([] if expected is None else [expected])
    assert requests.asked == [f"regarding.uid={pod('web-0', 'a1', spec()).uid}"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("answer", "status_code"), [(None, 200), (b"{}", 403), (b"no JSON", 200), (b'{"items": null}', 200), (b"[]", 200)]
)
async def test_without_events_no_evictor_is_named(answer: bytes | None, status_code: int) -> None:
    assert await names_found(Events(answer, status_code)) == []


@pytest.mark.virtual_time
async def test_events_are_requested_for_a_few_pods_at_a_time() -> None:
    assert len(await names_found(Events(listed(DESCHEDULER)), 3 * MOST_WAITING)) == MOST_WAITING
