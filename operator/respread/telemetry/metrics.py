"""The Prometheus metrics of Respread, one method for each thing that is measured; docs/metrics.md lists them.

No series is labelled by pod or node. Counters of a policy or namespace that is gone are to be forgotten, so that the
number of series follows what exists.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Final, Literal, NamedTuple, get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from respread.telemetry.gauges import (
    DECISION_LAG,
    DOMAIN_PODS,
    LAST_EVENT,
    OBJECTS,
    PLAN_GAUGES,
    POLICY,
    WATCH_LAG,
    Gauges,
    MetricDefinition,
    PlanFigures,
    PolicyFigures,
    plan_samples,
    policy_labels,
)

# From what a person notices to what somebody ought to look at.
_REBALANCE_BUCKETS_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
_PLAN_BUCKETS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_RECONCILE_BUCKETS_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_REQUEST_BUCKETS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_EVENT_BUCKETS_SECONDS: Final = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1, 1)


Phase = Literal["observe", "follow", "plan", "evict", "tell", "all"]
"""What the control loop does one after another: it takes over what has changed, follows the moves under way, plans,
evicts, and works out and writes statuses and metrics. `all` is the whole of it."""


IN_FLIGHT: Final = MetricDefinition(
    "respread_evictions_in_flight", "Evictions whose replacement is not Ready yet.", POLICY
)
EVICTIONS: Final = MetricDefinition(
    "respread_evictions_total",
    "Evictions requested from the API server, by its answer. Evicted starts at 0 for each namespace in which the "
    "policy governs spread groups.",
    (*POLICY, "namespace", "result"),
    "counter",
)
OUTCOMES: Final = MetricDefinition(
    "respread_eviction_outcomes_total",
    "Outcomes of evictions, counted when the replacement becomes Ready or Respread gives up on it. If the replacement "
    "is Ready for less than 10 s, the eviction counts twice: first as Improved, then as NotReady. All outcomes start "
    "at 0 when a policy is first seen.",
    (*POLICY, "outcome"),
    "counter",
)
REBALANCE: Final = MetricDefinition(
    "respread_rebalance_duration_seconds",
    "Time from when a group becomes violated until it is balanced again.",
    POLICY,
    "histogram",
    _REBALANCE_BUCKETS_SECONDS,
)
OTHER_EVICTIONS: Final = MetricDefinition(
    "respread_other_evictions_total",
    "Pods that somebody else evicted through the Eviction API from nodes that stay.",
    ("namespace",),
    "counter",
)
PREVENTION_PATCHES: Final = MetricDefinition(
    "respread_prevention_patches_total",
    "Patches of pod deletion costs, by the API server's answer.",
    (*POLICY, "result"),
    "counter",
)
EVICTIONS_AVOIDED: Final = MetricDefinition(
    "respread_prevention_evictions_avoided_total",
    "Estimated number of evictions that scale-downs would have needed without pod deletion costs.",
    POLICY,
    "counter",
)
COSTS_LOST: Final = MetricDefinition(
    "respread_prevention_costs_lost_total",
    "Pod deletion costs of Respread that somebody else removed or overwrote.",
    POLICY,
    "counter",
)
ROOM_REQUESTS: Final = MetricDefinition(
    "respread_room_requests_total",
    "Times that room was asked for in domains without a node, or without room on their nodes: Created, and how that "
    "ended: Ready, NoNode, NotTakenUp (no autoscaler took up the CapacityBuffer) or Unneeded.",
    (*POLICY, "result"),
    "counter",
)
PLANS: Final = MetricDefinition(
    "respread_plan_duration_seconds", "Duration of planning.", (), "histogram", _PLAN_BUCKETS_SECONDS
)
RECONCILES: Final = MetricDefinition(
    "respread_reconcile_duration_seconds",
    "Duration of a reconcile. phase is observe (take over changes), follow (check the moves in flight), plan, evict "
    "(choose the moves to make now; they are carried out beside the reconcile), tell (statuses and metrics), or all "
    "for the whole reconcile.",
    ("phase",),
    "histogram",
    _RECONCILE_BUCKETS_SECONDS,
)
EVENT_APPLIES: Final = MetricDefinition(
    "respread_event_apply_duration_seconds",
    "Time to apply one watch event to the stored state.",
    (),
    "histogram",
    _EVENT_BUCKETS_SECONDS,
)
RELISTS: Final = MetricDefinition(
    "respread_watch_relists_total", "Number of lists of the kind after the first one.", ("kind",), "counter"
)
DECODE_ERRORS: Final = MetricDefinition(
    "respread_decode_errors_total",
    "Objects that could not be decoded, or not in full; the log names them.",
    ("kind",),
    "counter",
)
API_REQUESTS: Final = MetricDefinition(
    "respread_api_requests_total",
    "Requests to the API server without watches and their lists, by the status code of the answer; none if there was "
    "none.",
    ("method", "resource", "code"),
    "counter",
)
API_REQUEST_TIMES: Final = MetricDefinition(
    "respread_api_request_duration_seconds",
    "Time from sending a request to the API server to its answer.",
    ("method", "resource"),
    "histogram",
    _REQUEST_BUCKETS_SECONDS,
)
LEADER: Final = MetricDefinition("respread_leader", "1 on the replica that holds the Lease, 0 on the others.")
BUILD: Final = MetricDefinition(
    "respread_build_info",
    "Always 1. revision is the commit that the image was built from.",
    ("version", "revision", "python_version"),
)

OF_EVICTIONS: Final = (
    *(EVICTIONS, OUTCOMES, IN_FLIGHT, REBALANCE, OTHER_EVICTIONS),
    *(PREVENTION_PATCHES, EVICTIONS_AVOIDED, COSTS_LOST, ROOM_REQUESTS),
)
"""What docs/metrics.md lists besides `PLAN_GAUGES`."""
OF_THE_OPERATOR: Final = (
    *(PLANS, RECONCILES, DECISION_LAG, WATCH_LAG, EVENT_APPLIES, LAST_EVENT, RELISTS, DECODE_ERRORS, OBJECTS),
    *(API_REQUESTS, API_REQUEST_TIMES, LEADER, BUILD),
)
"""What docs/operator-metrics.md lists."""


class CountedFromTheStart(NamedTuple):
    """What is counted of a policy from when it is first seen: the first sample of a counter is no increase."""

    results: tuple[str, ...] = ()
    """Answers to evictions, counted for each namespace in which the policy governs spread groups."""
    outcomes: tuple[str, ...] = ()
    room_results: tuple[str, ...] = ()
    """How asking for room ends, counted from the first time that a policy asks."""


_NOTHING: Final = CountedFromTheStart()


class Metrics:
    """Every metric of one operator, registered in one registry."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        version: str,
        revision: str = "",
        kinds: Iterable[str] = (),
        from_the_start: CountedFromTheStart = _NOTHING,
        domain_pods: bool = True,
    ) -> None:
        """Register all metrics, and those of the process and its interpreter.

        A second set in the same registry is a ValueError. The counters of the watched kinds are there, at 0, from the
        start, and those `from_the_start` of a policy from when it is first seen. `domain_pods` shows the pods of each
        domain of a constraint.
        """
        # The classic text format would carry a `…_created` gauge beside every counter, which nothing reads.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library left it out
        prometheus_client.ProcessCollector(registry=registry)
        prometheus_client.PlatformCollector(registry=registry)
        prometheus_client.GCCollector(registry=registry)
        self._plan = Gauges(each for each in PLAN_GAUGES if domain_pods or each.name != DOMAIN_PODS)
        self._in_flight = Gauges([IN_FLIGHT])
        registry.register(self._plan)
        registry.register(self._in_flight)
        build = Gauge(BUILD.name, BUILD.documentation, BUILD.labels, registry=registry)
        build.labels(version, revision, platform.python_version()).set(1)
        self._leader = Gauge(LEADER.name, LEADER.documentation, registry=registry)
        every = (*OF_EVICTIONS, *OF_THE_OPERATOR)
        self._counters = {
            each.name: Counter(each.name, each.documentation, each.labels, registry=registry)
            for each in every
            if each.kind == "counter"
        }
        self._histograms = {
            each.name: Histogram(each.name, each.documentation, each.labels, buckets=each.buckets, registry=registry)
            for each in every
            if each.kind == "histogram"
        }
        self._from_the_start = from_the_start
        self._started: dict[str, frozenset[str]] = {}
        """The namespaces for which there are counters of evictions, by policy."""
        self._kept: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        """The policies and namespaces that `keep` was last told of."""
        for kind in kinds:
            self.count(RELISTS, 0, kind=kind)
            self.count(DECODE_ERRORS, 0, kind=kind)
        for phase in get_args(Phase):
            self._histograms[RECONCILES.name].labels(phase)

    def count(self, counter: MetricDefinition, by: float = 1, **labels: str) -> None:
        """Add to a counter. The label `policy` is given as `namespace/name`, or a name alone."""
        self._counters[counter.name].labels(**_of_policy(labels)).inc(by)

    def observe(self, histogram: MetricDefinition, seconds: float, **labels: str) -> None:
        """Add a duration to a histogram, with labels as those of `count`."""
        metric = self._histograms[histogram.name]
        (metric.labels(**_of_policy(labels)) if labels else metric).observe(seconds)

    def show_plan(self, figures: PlanFigures) -> None:
        """Replace everything that describes the current plan; what that is in samples is worked out at a scrape."""
        self._plan.replace(partial(plan_samples, figures))
        for each in figures.policies:
            self._start_at_0(each)

    def _start_at_0(self, figures: PolicyFigures) -> None:
        policy, known = figures.policy, self._started.get(figures.policy)
        if known is None:
            for outcome in self._from_the_start.outcomes:
                self.count(OUTCOMES, 0, policy=policy, outcome=outcome)
            self.count(EVICTIONS_AVOIDED, 0, policy=policy)
        own, _ = policy_labels(policy)
        namespaces = figures.namespaces | ({own} if own else frozenset())
        for namespace in namespaces - (known or frozenset()):
            for result in self._from_the_start.results:
                self.count(EVICTIONS, 0, policy=policy, namespace=namespace, result=result)
        self._started[policy] = namespaces | (known or frozenset())

    def show_evictions_in_flight(self, by_policy: Mapping[str, int]) -> None:
        """Replace the numbers of evictions in flight; a policy that is left out is no longer shown."""
        samples = {"respread_evictions_in_flight": {policy_labels(name): number for name, number in by_policy.items()}}
        self._in_flight.replace(lambda: samples)

    def show_leadership(self, *, leading: bool) -> None:
        """Say whether this replica leads."""
        self._leader.set(leading)

    def count_room_request(self, *, policy: str, result: str) -> None:
        """Count that room was asked for, or how that ended. The result is `Created`, or how it ended."""
        for each in self._from_the_start.room_results:
            self.count(ROOM_REQUESTS, 0, policy=policy, result=each)
        self.count(ROOM_REQUESTS, policy=policy, result=result)

    @contextmanager
    def reconciling(self, phase: Phase) -> Iterator[None]:
        """Measure how long the context lasts, as a phase of a reconcile."""
        started = monotonic()
        try:
            yield
        finally:
            self.observe(RECONCILES, monotonic() - started, phase=phase)

    def observe_event_apply(self, seconds: float, events: int) -> None:
        """Record how long it took to take watch events that came together into the cluster's state."""
        applies = self._histograms[EVENT_APPLIES.name]
        for _ in range(events):
            applies.observe(seconds / events)

    def observe_request(self, method: str, resource: str, status_code: int | None, seconds: float) -> None:
        """Note a request to the API server; no status code means that there was no answer."""
        code = "none" if status_code is None else str(status_code)
        self.count(API_REQUESTS, method=method, resource=resource, code=code)
        self.observe(API_REQUEST_TIMES, seconds, method=method, resource=resource)

    def keep(self, policies: Iterable[str], namespaces: Iterable[str]) -> None:
        """Drop the counters of policies and namespaces that an earlier call named and that are gone."""
        before, self._kept = self._kept, (frozenset(policies), frozenset(namespaces))
        for policy in before[0] - self._kept[0]:
            self._started.pop(policy, None)
            self._forget(_of_policy({"policy": policy}))
        for namespace in before[1] - self._kept[1]:
            self._started.update({policy: known - {namespace} for policy, known in self._started.items()})
            self._forget({"namespace": namespace})

    def _forget(self, labels: dict[str, str]) -> None:
        for each in OF_EVICTIONS:
            metric = self._counters.get(each.name) or self._histograms.get(each.name)
            if metric is not None and labels.keys() <= set(each.labels):
                metric.remove_by_labels(labels)


def _of_policy(labels: dict[str, str]) -> dict[str, str]:
    """Return labels with those of `POLICY`, if a policy is among them."""
    return labels | dict(zip(POLICY, policy_labels(labels["policy"]), strict=True)) if "policy" in labels else labels
