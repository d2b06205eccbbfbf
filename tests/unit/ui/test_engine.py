"""The page shows the values of the commands, and changes are sent as differences."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from respread.api.reasons import Held, Reason
from respread.program.command_line import CommandError
from respread_cli.main import respread
from respread_cli.report.explaining import remedy_of
from respread_cli.report.planned import Planning
from respread_cli.report.what_if import CanceledError, Cancellation
from respread_cli.ui.engine import Engine
from respread_cli.ui.events import EventSubject, OperatorEvent, ReadEvents
from respread_cli.ui.history import read_past
from respread_cli.ui.overview import State
from respread_cli.ui.what_if import MOST_GROUPS, WhatIfRequest
from tests.policy_specs import policy_manifest
from tests.unit.cli.snapshots import list_of, manifest_of_pod
from tests.unit.ui.clusters import OPTIONS, ChangingSource, engine_for, web, zones

CLUSTER = [
    *zones("a", "b", "c"),
    *web(4, 1, 1),
    *web(2, 2, 2, name="even"),
    *web(3, 1, 0, name="soft", when="ScheduleAnyway"),
    *web(3, 0, 0, name="held", metadata={"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}),
]


def command(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Return the JSON output of a command for the same cluster."""
    file = tmp_path / "cluster.json"
    document = list_of(CLUSTER) | {"respread.dev/snapshot": {"takenAt": "2026-01-01T00:00:00Z", "source": "a test"}}
    file.write_text(json.dumps(document), encoding="utf-8")
    done = CliRunner().invoke(respread, [*arguments, "--snapshot", str(file), "-o", "json"])
    assert done.exit_code in {0, 1}, done.output
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def as_json(value: object) -> object:
    return json.loads(msgspec.json.encode(value))


def test_rows_are_the_groups_of_skew_in_its_order(tmp_path: Path) -> None:
    overview = engine_for(ChangingSource(CLUSTER)).page().overview
    report = command(tmp_path, "skew", "--when-unsatisfiable", "DoNotSchedule")
    hard = [row.group for row in overview.rows if row.group.when_unsatisfiable == "DoNotSchedule"]
    assert as_json(hard) == report["groups"]
    everything = command(tmp_path, "skew")
    assert as_json([row.group for row in overview.rows]) == everything["groups"]
    assert (overview.violated, overview.worst_skew) == (everything["violated"], everything["worstSkew"])


def test_states_evictions_and_reasons_are_those_of_plan(tmp_path: Path) -> None:
    overview = engine_for(ChangingSource(CLUSTER)).page().overview
    report = command(tmp_path, "plan")
    assert overview.evictions == report["evictions"] == 2
    states = {str(row.group.workloads[0]): row.state for row in overview.rows}
    assert states == {
        "deploy/web": State.VIOLATED,
        "deploy/even": State.HOLDS,
        "deploy/soft": State.NOT_SELECTED,
        "deploy/held": State.BLOCKED,
    }
    (blocked,) = (row for row in overview.rows if row.state is State.BLOCKED)
    (reported,) = report["blocked"]
    assert (blocked.reason, blocked.message) == (reported["reason"], reported["message"])
    assert blocked.remedy == "remove the annotation cluster-autoscaler.kubernetes.io/safe-to-evict"
    (planned,) = (row for row in overview.rows if row.state is State.VIOLATED)
    assert (planned.evictions, planned.skew_after) == (2, 0)


BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "gateway", "namespace": "default", "uid": "budget", "generation": 1},
    "spec": {"maxUnavailable": 0, "selector": {}},
    "status": {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "currentHealthy": 4,
        "desiredHealthy": 4,
        "expectedPods": 4,
    },
}


@pytest.mark.parametrize(
    ("manifests", "remedy"),
    [
        ([*zones("a", "b"), BUDGET], "raise maxUnavailable of PodDisruptionBudget gateway"),
        (
            [*zones("a", "b"), BUDGET | {"status": BUDGET["status"] | {"currentHealthy": 2, "desiredHealthy": 3}}],
            "make more of the budget's pods Ready",
        ),
        ([*zones("a"), *zones("b", spec={"unschedulable": True})], "uncordon, free or add nodes in zone-b"),
    ],
)
def test_a_blocked_row_says_what_to_do_about_it_by_name(manifests: list[dict[str, Any]], remedy: str) -> None:
    engine = engine_for(ChangingSource([*manifests, *web(3, 1)]))
    (row,) = engine.page().overview.rows
    (explained,) = engine.workload("default", "deploy/web").explain.constraints
    assert (row.state, row.remedy, explained.remedy) == (State.BLOCKED, remedy, remedy)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_short_remedy(reason: Reason) -> None:
    assert 0 < len(remedy_of(Held(reason, ""))) <= 60


def test_the_summary_counts_violated_restorable_and_remaining_groups() -> None:
    overview = engine_for(ChangingSource(CLUSTER)).page().overview
    assert overview.summary == (
        "3 of 4 constraints are violated: 2 evictions would restore 1, 1 is blocked, no policy restores 1."
    )
    even = engine_for(ChangingSource([*zones("a", "b"), *web(2, 2)])).page().overview
    assert even.summary == "The only constraint holds: every pod is spread as it should be."
    alone = engine_for(ChangingSource([*zones("a", "b"), *web(3, 1)])).page().overview
    assert alone.summary == "1 of 1 constraint is violated: 1 eviction would restore it."
    assert engine_for(ChangingSource(zones("a"))).page().overview.summary.startswith("No pod")


def test_the_summary_says_how_long_the_evictions_take_if_pods_show_it() -> None:
    pods = web(5, 1)
    for each in pods:
        created = each["metadata"]["creationTimestamp"]
        each["status"]["conditions"][0]["lastTransitionTime"] = created.replace("00:00Z", "01:00Z")
    overview = engine_for(ChangingSource([*zones("a", "b"), *pods])).page().overview
    assert overview.summary == (
        "1 of 1 constraint is violated: 2 evictions would restore it (about 2 min: inFlightPerWorkload 1)."
    )


def test_the_workload_view_is_what_explain_reports(tmp_path: Path) -> None:
    page = engine_for(ChangingSource(CLUSTER)).workload("default", "deploy/web")
    report = command(tmp_path, "explain", "deploy/web", "-n", "default")
    differing = {"source", "time", "notes"}
    explained = as_json(page.explain)
    assert isinstance(explained, dict)
    assert explained.keys() == report.keys()
    assert {key: value for key, value in explained.items() if key not in differing} == {
        key: value for key, value in report.items() if key not in differing
    }
    assert {pod.name for pod in page.pods} == {pod.pod for pod in page.explain.pods}
    assert {node.name: dict(node.domains)["topology.kubernetes.io/zone"] for node in page.nodes} == {
        "node-a": "zone-a",
        "node-b": "zone-b",
        "node-c": "zone-c",
    }


def test_the_curve_agrees_with_the_numbers_of_replicas_that_explain_names() -> None:
    page = engine_for(ChangingSource(CLUSTER)).workload("default", "deploy/web")
    (curve,), (scale_down,) = page.curves, page.explain.scale_downs
    assert [point.replicas for point in curve.points] == [1, 2, 3, 4, 5]
    violating = tuple(point.replicas for point in curve.points if point.as_it_is.evictions)
    assert violating == scale_down.violating_replicas
    assert all(point.with_costs.evictions <= point.without_costs.evictions for point in curve.points)


def test_what_if_is_what_simulate_reports_and_its_command_line_says_the_same(tmp_path: Path) -> None:
    engine = engine_for(ChangingSource(CLUSTER))
    request = WhatIfRequest(
        scale=("default/deploy/web=3",), cordon=("node-c",), drain=("node-b",), add_nodes=("1,like=node-b",)
    )
    answer = engine.simulate(request, Cancellation())
    words = shlex.split(answer.command)
    assert words[:2] == ["respread", "simulate"]
    report = command(tmp_path, *words[1:])
    simulated = as_json(answer.report)
    assert isinstance(simulated, dict)
    differing = {"source", "time", "notes"}
    assert {key: value for key, value in simulated.items() if key not in differing} == {
        key: value for key, value in report.items() if key not in differing
    }
    assert simulated["cordonedNodes"] == ["node-c"]


def test_what_if_does_not_affect_the_other_views() -> None:
    engine = engine_for(ChangingSource(CLUSTER))
    before = engine.workload("default", "deploy/web")
    engine.simulate(WhatIfRequest(remove_domain=("zone=zone-a",)), Cancellation())
    engine.simulate(WhatIfRequest(scale=("default/deploy/web=2",)), Cancellation())
    assert engine.workload("default", "deploy/web") == before


def test_a_simulation_does_not_depend_on_those_before_it() -> None:
    source = ChangingSource([*CLUSTER, *zones("d", "e")])
    engine = engine_for(source)
    engine.prepare_simulations()
    requests = (
        WhatIfRequest(scale=("default/deploy/web=3",)),
        WhatIfRequest(remove_domain=("zone=zone-a",), add_nodes=("2",)),
        WhatIfRequest(drain=("node-a",)),
        WhatIfRequest(scale=("default/deploy/even=8", "default/deploy/web=2"), cordon=("node-b",)),
    )
    changes = (web(5, 1, 2), zones("f"), web(1, 1, name="new"))
    for change in ([], *changes):
        source.put(change)
        engine.refresh()
        for request in (*requests, *reversed(requests)):
            assert engine.simulate(request, Cancellation()) == engine_for(source).simulate(request, Cancellation())


class CanceledAfter(Cancellation):
    """A cancellation that comes after a number of checks."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.checks = 0

    def check(self) -> None:
        if self.checks == self.most:
            self.cancel()
        super().check()
        self.checks += 1


def test_a_simulation_that_ends_early_leaves_nothing_behind() -> None:
    engine = engine_for(ChangingSource(CLUSTER))
    request = WhatIfRequest(remove_domain=("zone=zone-a",), scale=("default/deploy/even=3",))
    expected = engine_for(ChangingSource(CLUSTER)).simulate(request, Cancellation())
    counting = CanceledAfter(sys.maxsize)
    engine.simulate(request, counting)
    assert counting.checks > 10
    for checks in range(0, counting.checks, 5):
        with pytest.raises(CanceledError):
            engine.simulate(request, CanceledAfter(checks))
        assert engine.simulate(request, Cancellation()) == expected


def test_a_long_simulation_is_sent_in_part_with_the_number_of_everything() -> None:
    many = [pod for number in range(MOST_GROUPS + 5) for pod in web(1, 1, 0, name=f"many-{number:02}")]
    worst = web(5, 1, 1, name="worst")
    engine = engine_for(ChangingSource([*zones("a", "b", "c"), *many, *worst]))
    answer = engine.simulate(
        WhatIfRequest(scale=("default/deploy/worst=9",), remove_domain=("zone=zone-a",)), Cancellation()
    )
    assert answer.totals.groups == MOST_GROUPS + 6
    assert answer.totals.violated == 1
    sent = [str(each.group.workloads[0]) for each in answer.report.groups]
    assert len(sent) == MOST_GROUPS
    assert sent == sorted(sent)
    assert "deploy/worst" in sent
    assert answer.totals.as_it_is.placed == MOST_GROUPS + 5 + 5 + 2


def test_a_change_that_can_not_be_simulated_is_an_error_with_the_reason() -> None:
    with pytest.raises(CommandError, match="there is no node nowhere"):
        engine_for(ChangingSource(CLUSTER)).simulate(WhatIfRequest(drain=("nowhere",)), Cancellation())


def test_a_change_sends_only_differing_rows_and_a_message() -> None:
    source = ChangingSource(CLUSTER)
    engine = engine_for(source)
    first = engine.page()
    source.delete(web(2, 2, 2, name="even")[4:])  # [2, 2, 0]: skew 2
    update = engine.refresh()
    assert update is not None
    assert update.change is not None
    assert update.change.version == first.version + 1
    assert [str(row.group.workloads[0]) for row in update.change.rows] == ["deploy/even"]
    assert update.change.gone == ()
    assert update.change.fields["violated"] == first.overview.violated + 1
    assert update.timeline is not None
    (happening,) = update.timeline.happenings
    assert (happening.kind, happening.workload) == ("violated", "deploy/even")
    assert engine.refresh() is None


def test_a_deleted_group_is_named() -> None:
    source = ChangingSource(CLUSTER)
    engine = engine_for(source)
    (even,) = (row for row in engine.page().overview.rows if str(row.group.workloads[0]) == "deploy/even")
    source.delete(web(2, 2, 2, name="even"))
    update = engine.refresh()
    assert update is not None
    assert update.change is not None
    assert update.change.gone == (even.id,)


def test_all_changes_together_give_the_full_state() -> None:
    source = ChangingSource(CLUSTER)
    engine = engine_for(source)
    rows = {row.id: row for row in engine.page().overview.rows}
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(type(engine.page().overview))}
    values = {name: getattr(engine.page().overview, name) for name in fields.values()}
    for change in (web(1, 0, 0, name="new"), web(5, 1, 1), [manifest_of_pod("more", "", "web", {})], zones("d")):
        source.put(change)
        update = engine.refresh()
        if update is None or update.change is None:
            continue
        for gone in update.change.gone:
            del rows[gone]
        rows |= {row.id: row for row in update.change.rows}
        values |= {fields[name]: value for name, value in update.change.fields.items()}
    overview = engine.page().overview
    assert rows == {row.id: row for row in overview.rows}
    assert all(values[name] == getattr(overview, name) for name in fields.values() if name != "rows")


def event(kind: str, name: str, note: str, *, pod: str = "", second: int = 0) -> OperatorEvent:
    """Return an Event on an object in the namespace default, or on a cluster policy."""
    cluster_scoped = kind == "ClusterRebalancePolicy"
    return OperatorEvent(
        time=datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC),
        warning=False,
        reason="EvictedForSpread" if pod else "EvictionsPaused",
        note=note,
        count=1,
        regarding=EventSubject(kind, "" if cluster_scoped else "default", name),
        related=EventSubject("Pod", "default", pod) if pod else EventSubject(),
    )


POLICY = policy_manifest("all", {}, uid="all", generation=1)
EVENTS = ReadEvents(
    (
        event("ClusterRebalancePolicy", "all", "Evicted pod web-9", pod="web-9", second=3),
        event("Deployment", "web", "Evicted pod web-9", pod="web-9", second=3),
        event("Deployment", "even", "Evicted pod even-9", pod="even-9", second=2),
        event("ReplicaSet", "web-1", "of an earlier leader", second=1),
        event("ClusterRebalancePolicy", "all", "Three failures in a row"),
        event("ClusterRebalancePolicy", "other", "of another policy"),
    )
)


def test_events_of_a_workload_include_those_on_its_policy() -> None:
    source = ChangingSource([*CLUSTER, POLICY])
    source.read_events = EVENTS
    engine = engine_for(source)
    question = engine.events_question("default", "deploy/web")
    assert question.namespaces == ("default",)
    notes = [each.note for each in engine.events(question).events]
    assert notes == ["Evicted pod web-9", "of an earlier leader", "Three failures in a row"]


def test_the_history_has_each_eviction_once_from_events_and_records() -> None:
    in_flight = {
        "namespace": "default",
        "node": "node-a",
        "workload": "Deployment/web",
        "controllerKind": "ReplicaSet",
        "controllerName": "web-1",
        "controllerUid": web(1)[0]["metadata"]["ownerReferences"][0]["uid"],
        "sent": "2025-12-31T23:59:59Z",
        "newest": "2020-01-01T00:00:00Z",
    }
    evictions = [{"minute": "2025-12-31T23:59:00Z", "evictions": 5}, {"minute": "2025-12-31T22:00:00Z", "evictions": 9}]
    moves = [in_flight | {"uid": pod, "pod": pod} for pod in ("web-9", "web-8")]
    record = {
        "apiVersion": POLICY["apiVersion"],
        "kind": "ClusterRebalancePolicyRecord",
        "metadata": {"name": "all"},
        "policy": "all",
        "record": json.dumps({"movesInFlight": moves, "recentEvictions": evictions}),
    }
    source = ChangingSource([*CLUSTER, POLICY, record])
    source.read_events = EVENTS
    history = engine_for(source).history()
    assert [(each.kind, each.text) for each in history.happenings] == [
        ("evicted", "Evicted pod web-9"),
        ("said", "EvictionsPaused: Three failures in a row"),
        ("evicted", "The operator evicted pod web-8 from node-a for policy all"),
    ]
    assert (history.evictions, history.points, history.unreadable) == (5, (), None)


def test_a_prometheus_that_can_not_be_read_is_reported() -> None:
    source = ChangingSource([*CLUSTER, POLICY])
    engine = Engine(source.source(), partial(Planning, OPTIONS), (), partial(read_past, "http://127.0.0.1:9"))
    engine.refresh()
    assert (engine.history().unreadable or "").startswith("The history can't be read from the Prometheus at http://127")


def test_only_the_row_of_a_changed_group_differs() -> None:
    source = ChangingSource([*CLUSTER, POLICY])
    engine = engine_for(source)
    before = {row.id: row for row in engine.page().overview.rows}
    source.delete(web(2, 2, 2, name="even")[5:])
    assert engine.refresh() is not None
    after = {row.id: row for row in engine.page().overview.rows}
    changed = [row for row in after.values() if before[row.id] != row]
    assert [str(row.group.workloads[0]) for row in changed] == ["deploy/even"]


def test_protection_follows_pods_and_policies() -> None:
    """The page and `skew -o wide` report the same protection for the same state."""

    def reported(engine: Engine) -> dict[str, str]:
        return {str(each.workload): each.reason for row in engine.page().overview.rows for each in row.protections}

    preventing = POLICY | {"spec": {"prevention": {"podDeletionCost": "Enabled"}}}
    source = ChangingSource([*zones("a", "b"), *web(2, 1), *web(1, 1, name="even"), POLICY])
    engine = engine_for(source)
    assert set(reported(engine).values()) == {"PreventionDisabled"}
    source.put([preventing])
    engine.refresh()
    assert set(reported(engine).values()) == {"NotRanked"}
    source.delete(web(1, 1, name="even")[1:])
    engine.refresh()
    assert reported(engine) == {"deploy/web": "NotRanked", "deploy/even": "SinglePod"}
    source.delete(web(1, 1, name="even")[:1])
    engine.refresh()
    assert reported(engine) == {"deploy/web": "NotRanked"}
    from_scratch = engine_for(ChangingSource([*zones("a", "b"), *web(2, 1), preventing]))
    assert reported(engine) == reported(from_scratch)


def test_protection_of_workloads_without_replica_sets_is_known_while_they_have_pods() -> None:
    pods = web(2, 1, name="db")
    for pod in pods:
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    source = ChangingSource([*zones("a", "b"), *web(2, 1), *pods, POLICY])
    engine = engine_for(source)

    def reasons() -> dict[str, str]:
        return {str(each.workload): each.reason for row in engine.page().overview.rows for each in row.protections}

    assert reasons() == {"deploy/web": "PreventionDisabled", "sts/db": "HighestOrdinal"}
    source.delete(pods)
    engine.refresh()
    assert reasons() == {"deploy/web": "PreventionDisabled"}


def test_the_fields_of_a_simulation_have_the_names_that_the_page_sends() -> None:
    sent = {"scale": ["web=2"], "drain": [], "cordon": [], "removeDomain": ["zone=a"], "addNodes": ["3"]}
    request = msgspec.json.decode(json.dumps(sent), type=WhatIfRequest)
    assert request == WhatIfRequest(scale=("web=2",), remove_domain=("zone=a",), add_nodes=("3",))
