"""The metrics: exposed and removed series, and complete documentation in docs/metrics.md."""

from __future__ import annotations

import platform
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from respread.api.policy import WhenUnsatisfiable
from respread.api.reasons import Reason
from respread.cluster.decode.decoder import KINDS
from respread.cluster.objects import Namespace
from respread.handlers.informer import Informers
from respread.telemetry.gauges import PlanFigures, PolicyFigures, SkewFigure
from respread.telemetry.health import WatchHealth
from respread.telemetry.metrics import (
    COSTS_LOST,
    DECODE_ERRORS,
    EVICTIONS,
    EVICTIONS_AVOIDED,
    OTHER_EVICTIONS,
    OUTCOMES,
    PLANS,
    PREVENTION_PATCHES,
    REBALANCE,
    RELISTS,
    CountedFromTheStart,
    Metrics,
)

DOCS = Path(__file__).parents[3] / "docs"
TEXT = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("metrics.md", "operator-metrics.md"))
LINUX = platform.system() == "Linux"


class Described(NamedTuple):
    name: str
    type: str
    labels: frozenset[str]


def skew(
    workload: str,
    skew: int,
    max_skew: int = 1,
    *,
    namespace: str = "shop",
    topology_key: str = "zone",
    when_unsatisfiable: WhenUnsatisfiable = "DoNotSchedule",
) -> SkewFigure:
    return SkewFigure(
        namespace=namespace,
        workload=workload,
        topology_key=topology_key,
        when_unsatisfiable=when_unsatisfiable,
        skew=skew,
        max_skew=max_skew,
    )


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry, version="1.2.3")


def samples(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of one name by their label values."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def exposed(registry: CollectorRegistry) -> set[Described]:
    """Return every family of a scrape, with the labels of its samples."""
    found = set()
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert len(labels) == 1, f"{family.name} has samples with {labels or 'no'} labels; exercise it in this test"
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found.add(Described(name, family.type, labels.pop()))
    return found


def documented() -> set[Described]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*)\|", TEXT, re.MULTILINE)
    return {Described(name, kind, frozenset(re.findall(r"\w+", labels))) for name, kind, labels in rows}


def test_the_documented_metrics_are_those_of_the_code(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry, version="1.2.3", kinds=["pods"])
    Informers([KINDS["pods"]], health=WatchHealth(["pods"]), metrics=metrics).register_gauges(registry)
    metrics.show_plan(
        PlanFigures(
            skews=(msgspec.structs.replace(skew("Deployment/web", 3), pods={"a": 3}, blocked="NoFeasibleNode"),),
            policies=(
                PolicyFigures(
                    policy="default",
                    groups={"DoNotSchedule": 2},
                    violated={"DoNotSchedule": 1},
                    unworkable={("Unsatisfiable", "Now", "TooFewDomains"): 1},
                    blocked={Reason.NO_FEASIBLE_NODE: 1},
                    planned_evictions=4,
                    missing_permissions={"patch pods": 3},
                    limits_used=0.5,
                ),
            ),
        )
    )
    metrics.show_evictions_in_flight({"default": 1})
    metrics.show_leadership(leading=True)
    metrics.count(EVICTIONS, policy="default", namespace="shop", result="Evicted")
    metrics.count(OUTCOMES, policy="default", outcome="Improved")
    metrics.count(PREVENTION_PATCHES, policy="default", result="Applied")
    metrics.count(EVICTIONS_AVOIDED, 2, policy="default")
    metrics.count(COSTS_LOST, 3, policy="default")
    metrics.count(OTHER_EVICTIONS, namespace="shop")
    metrics.count_room_request(policy="default", result="Created")
    metrics.observe(REBALANCE, 12, policy="default")
    metrics.observe(PLANS, 0.002)
    metrics.observe_event_apply(0.00001, 1)
    metrics.observe_request("POST", "pods/eviction", 201, 0.01)

    assert exposed(registry) == {row for row in documented() if LINUX or not row.name.startswith("process_")}


def test_the_same_scrape_is_valid_openmetrics(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.show_plan(PlanFigures(skews=(skew("Deployment/web", 3),)))
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]  # the library left it out
    parsed = parse_openmetrics(text)  # type: ignore[no-untyped-call]  # as above
    families = {family.name: family for family in parsed}
    (sample,) = families["respread_spread_skew"].samples
    assert (sample.labels["workload"], sample.value) == ("Deployment/web", 3)


def test_counters_have_no_created_series(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.count(EVICTIONS, policy="default", namespace="shop", result="Evicted")
    assert b"_created" not in generate_latest(registry)


def test_a_new_plan_replaces_all_samples_of_the_last(registry: CollectorRegistry, metrics: Metrics) -> None:
    first = PolicyFigures(
        policy="old", groups={"DoNotSchedule": 2}, blocked={Reason.HELD_BY_BUDGET: 1}, planned_evictions=4
    )
    metrics.show_plan(PlanFigures(skews=(skew("Deployment/web", 3), skew("Deployment/api", 1)), policies=(first,)))
    second = PolicyFigures(policy="new", groups={"ScheduleAnyway": 5}, violated={"ScheduleAnyway": 1})
    metrics.show_plan(PlanFigures(skews=(skew("Deployment/api", 0, 2),), policies=(second,)))

    api = ("shop", "Deployment/api", "zone", "DoNotSchedule")
    assert samples(registry, "respread_spread_skew") == {api: 0}
    assert samples(registry, "respread_spread_max_skew") == {api: 2}
    assert samples(registry, "respread_spread_groups") == {("", "new", "ScheduleAnyway"): 5}
    assert samples(registry, "respread_spread_groups_violated") == {("", "new", "ScheduleAnyway"): 1}
    assert samples(registry, "respread_spread_groups_blocked") == {}
    assert samples(registry, "respread_evictions_planned") == {("", "new"): 0}


def test_how_long_the_rest_takes_is_shown_with_the_limit_that_bounds_it(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    bounded = PolicyFigures(
        policy="shop/web", remaining_seconds=2460.0, bound_by="inFlightPerWorkload", limits_used=0.9
    )
    unknown = PolicyFigures(policy="new", remaining_seconds=None)
    metrics.show_plan(PlanFigures(policies=(bounded, unknown, PolicyFigures(policy="done"))))
    assert samples(registry, "respread_remaining_seconds") == {
        ("shop", "web", "inFlightPerWorkload"): 2460.0,
        ("", "done", ""): 0.0,
    }
    assert samples(registry, "respread_limits_used_ratio") == {("shop", "web"): 0.9}


def test_zero_violated_groups_are_exposed_as_zero(registry: CollectorRegistry, metrics: Metrics) -> None:
    kinds: dict[WhenUnsatisfiable, int] = {"DoNotSchedule": 2, "ScheduleAnyway": 1}
    policy = PolicyFigures(policy="shop/web", groups=kinds, violated={"DoNotSchedule": 1})
    metrics.show_plan(PlanFigures(policies=(policy,)))
    assert samples(registry, "respread_spread_groups_violated") == {
        ("shop", "web", "DoNotSchedule"): 1,
        ("shop", "web", "ScheduleAnyway"): 0,
    }


def test_reason_labels_are_the_documented_reasons(registry: CollectorRegistry, metrics: Metrics) -> None:
    policy = PolicyFigures(policy="shop/web", blocked={Reason.HELD_BY_BUDGET: 2})
    metrics.show_plan(PlanFigures(policies=(policy,)))
    assert samples(registry, "respread_spread_groups_blocked") == {("shop", "web", "HeldByBudget"): 2}


@pytest.mark.parametrize("turned", [False, True])
def test_the_worst_of_constraints_with_equal_labels_is_exposed(
    registry: CollectorRegistry, metrics: Metrics, turned: bool
) -> None:
    figures = (skew("Deployment/web", 5, 5), skew("Deployment/web", 3, 1), skew("Deployment/web", 2, 1))
    metrics.show_plan(PlanFigures(skews=figures[::-1] if turned else figures))
    web = ("shop", "Deployment/web", "zone", "DoNotSchedule")
    assert samples(registry, "respread_spread_skew") == {web: 3}
    assert samples(registry, "respread_spread_max_skew") == {web: 1}


def test_pods_without_a_controller_are_not_labels(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.show_plan(PlanFigures(skews=(skew("Pod/a", 1), skew("Pod/b", 4))))
    assert samples(registry, "respread_spread_skew") == {("shop", "Pod", "zone", "DoNotSchedule"): 4}


def test_the_samples_of_a_plan_are_computed_once_and_only_on_a_scrape(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    asked: list[int] = []

    class Skews:
        def __init__(self, number: int) -> None:
            self._number = number

        def __iter__(self) -> Iterator[SkewFigure]:
            asked.append(self._number)
            return iter((skew("Deployment/web", self._number),))

    for number in range(100):
        metrics.show_plan(PlanFigures(skews=Skews(number)))
    assert asked == []
    web = ("shop", "Deployment/web", "zone", "DoNotSchedule")
    for _ in range(3):
        assert samples(registry, "respread_spread_skew") == {web: 99}
    assert asked == [99]


def test_a_scrape_never_sees_half_a_plan(registry: CollectorRegistry, metrics: Metrics) -> None:
    plans = [
        PlanFigures(skews=tuple(skew(f"Deployment/{n}", generation, generation) for n in range(50)))
        for generation in range(1, 20)
    ]
    metrics.show_plan(plans[0])
    stop = threading.Event()

    def keep_planning() -> None:
        while not stop.is_set():
            for plan in plans:
                metrics.show_plan(plan)

    thread = threading.Thread(target=keep_planning)
    thread.start()
    try:
        seen: list[str] = []
        deadline = time.monotonic() + 60  # a busy machine may run few switches between the threads
        while len(seen) < 20 or (len(set(seen)) == 1 and time.monotonic() < deadline):
            text = generate_latest(registry).decode()
            values = re.findall(r"^respread_spread_(?:max_)?skew\{.*\} (\S+)$", text, re.MULTILINE)
            assert len(values) == 100
            assert len(set(values)) == 1
            seen.append(values[0])
    finally:
        stop.set()
        thread.join()
    assert len(set(seen)) > 1


def test_evictions_in_flight_are_exposed_for_existing_policies(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.show_evictions_in_flight({"default": 2, "shop/web": 1})
    metrics.show_evictions_in_flight({"shop/web": 0})
    assert samples(registry, "respread_evictions_in_flight") == {("shop", "web"): 0}


def test_counters_of_deleted_policies_are_dropped(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.keep(["a", "b", "one/a"], ["one", "two"])
    for policy, namespace in (("a", "one"), ("a", "two"), ("b", "one"), ("one/a", "one")):
        metrics.count(EVICTIONS, policy=policy, namespace=namespace, result="Evicted")
        metrics.count(OUTCOMES, policy=policy, outcome="Improved")
        metrics.count(PREVENTION_PATCHES, policy=policy, result="Applied")
        metrics.count(EVICTIONS_AVOIDED, 2, policy=policy)
        metrics.observe(REBALANCE, 1, policy=policy)
    metrics.keep(["b"], ["one", "two"])
    assert samples(registry, "respread_evictions_total") == {("", "b", "one", "Evicted"): 1}
    assert samples(registry, "respread_eviction_outcomes_total") == {("", "b", "Improved"): 1}
    assert samples(registry, "respread_prevention_patches_total") == {("", "b", "Applied"): 1}
    assert samples(registry, "respread_prevention_evictions_avoided_total") == {("", "b"): 2}
    assert samples(registry, "respread_rebalance_duration_seconds_count") == {("", "b"): 1}
    metrics.keep(["b"], ["two"])
    assert samples(registry, "respread_evictions_total") == {}


def test_the_counters_of_a_policy_start_at_zero(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry, version="1", from_the_start=CountedFromTheStart(("Evicted",), ("Improved",)))
    of_shop = PolicyFigures(policy="default", namespaces=frozenset({"shop"}))
    metrics.keep(["default", "own/mine"], ["shop", "bank"])
    metrics.show_plan(PlanFigures(policies=(of_shop, PolicyFigures(policy="own/mine"))))
    evictions = {("", "default", "shop", "Evicted"): 0, ("own", "mine", "own", "Evicted"): 0}
    assert samples(registry, "respread_evictions_total") == evictions
    outcomes = {("", "default", "Improved"): 0, ("own", "mine", "Improved"): 0}
    assert samples(registry, "respread_eviction_outcomes_total") == outcomes
    assert samples(registry, "respread_prevention_evictions_avoided_total") == {("", "default"): 0, ("own", "mine"): 0}

    metrics.count(EVICTIONS, policy="default", namespace="shop", result="Evicted")
    of_both = PolicyFigures(policy="default", namespaces=frozenset({"shop", "bank"}))
    metrics.show_plan(PlanFigures(policies=(of_both,)))
    evictions |= {("", "default", "shop", "Evicted"): 1, ("", "default", "bank", "Evicted"): 0}
    assert samples(registry, "respread_evictions_total") == evictions

    metrics.keep(["default"], ["bank"])
    assert samples(registry, "respread_evictions_total") == {("", "default", "bank", "Evicted"): 0}
    metrics.show_plan(PlanFigures(policies=(of_both, PolicyFigures(policy="own/mine"))))
    again = {("", "default", "bank", "Evicted"): 0, ("", "default", "shop", "Evicted"): 0}
    assert samples(registry, "respread_evictions_total") == again | {("own", "mine", "own", "Evicted"): 0}


def test_the_counters_of_watched_kinds_start_at_zero(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry, version="1", kinds=["pods", "nodes"])
    metrics.count(RELISTS, kind="pods")
    metrics.count(DECODE_ERRORS, kind="nodes")
    assert samples(registry, "respread_watch_relists_total") == {("pods",): 1, ("nodes",): 0}
    assert samples(registry, "respread_decode_errors_total") == {("pods",): 0, ("nodes",): 1}


def test_ages_counts_and_lags_are_read_at_each_scrape(registry: CollectorRegistry) -> None:
    now = [0.0]
    health = WatchHealth(["namespaces"], clock=lambda: now[0])
    informers = Informers([KINDS["namespaces"]], health=health, metrics=Metrics(CollectorRegistry(), version="1"))
    informers.register_gauges(registry)
    assert samples(registry, "respread_watch_lag_seconds") == {("namespaces",): 0}
    assert samples(registry, "respread_decision_lag_seconds") == {(): 0}
    now[0] = 2.5
    namespace = Namespace(name="shop")
    informers.by_kind[KINDS["namespaces"]].apply([(namespace.key, namespace)])
    informers.changes.notify("pods")
    informers.all[0].backlog.came()
    before = time.time()
    (came,) = samples(registry, "respread_watch_last_event_timestamp_seconds").values()
    assert before - 2.5 <= came <= time.time() - 2.5
    assert samples(registry, "respread_cluster_objects") == {("namespaces",): 1}
    assert 0 < samples(registry, "respread_watch_lag_seconds")["namespaces",] < 10
    assert 0 < samples(registry, "respread_decision_lag_seconds")[()] < 10


def test_every_phase_of_a_reconcile_is_measured_even_if_it_fails(registry: CollectorRegistry, metrics: Metrics) -> None:
    name = "respread_reconcile_duration_seconds_count"
    assert set(samples(registry, name).values()) == {0}
    with metrics.reconciling("all"), pytest.raises(ZeroDivisionError), metrics.reconciling("plan"):
        raise ZeroDivisionError
    assert samples(registry, name) == {
        (phase,): float(phase in {"all", "plan"}) for phase in ("observe", "follow", "plan", "evict", "tell", "all")
    }


def test_the_leader_metric_is_one_or_zero(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.show_leadership(leading=True)
    assert samples(registry, "respread_leader") == {(): 1}
    metrics.show_leadership(leading=False)
    assert samples(registry, "respread_leader") == {(): 0}


def test_durations_fall_into_buckets(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.observe(PLANS, 0.02)
    metrics.observe_event_apply(0.00003, 1)
    metrics.observe(REBALANCE, 45, policy="default")
    plan = samples(registry, "respread_plan_duration_seconds_bucket")
    assert (plan["0.01",], plan["0.025",]) == (0, 1)
    event = samples(registry, "respread_event_apply_duration_seconds_bucket")
    assert (event["2e-05",], event["5e-05",]) == (0, 1)
    rebalance = samples(registry, "respread_rebalance_duration_seconds_bucket")
    assert (rebalance["", "default", "30.0"], rebalance["", "default", "60.0"]) == (0, 1)


def test_two_operators_in_one_process_have_separate_metrics() -> None:
    one, two = CollectorRegistry(), CollectorRegistry()
    Metrics(one, version="1").observe(PLANS, 1)
    Metrics(two, version="1")
    assert samples(one, "respread_plan_duration_seconds_count") == {(): 1}
    assert samples(two, "respread_plan_duration_seconds_count") == {(): 0}


def test_the_build_info_has_the_version(registry: CollectorRegistry) -> None:
    Metrics(registry, version="1.2.3", revision="c0ffee")
    assert samples(registry, "respread_build_info") == {("1.2.3", "c0ffee", platform.python_version()): 1}


def test_requests_are_counted_by_status_code_and_resource(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.observe_request("POST", "pods/eviction", 201, 0.03)
    metrics.observe_request("POST", "pods/eviction", 429, 0.02)
    metrics.observe_request("GET", "pods", None, 10)
    assert samples(registry, "respread_api_requests_total") == {
        ("POST", "pods/eviction", "201"): 1,
        ("POST", "pods/eviction", "429"): 1,
        ("GET", "pods", "none"): 1,
    }
    assert samples(registry, "respread_api_request_duration_seconds_sum")["POST", "pods/eviction"] == pytest.approx(
        0.05
    )
