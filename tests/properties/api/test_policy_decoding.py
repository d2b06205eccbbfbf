"""Any policy can be decoded and evaluated, whatever it contains."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st
from immutables import Map

from respread.api.conditions import next_status
from respread.api.decoding import decode_policy, decode_status
from respread.api.fields import LabelSelector, LabelSelectorRequirement, format_duration, parse_duration
from respread.api.policy import (
    ClusterPolicySpec,
    ConstraintRules,
    EvictionOptions,
    ExpectedDomains,
    Limits,
    Prevention,
    PriorityThreshold,
    VictimRules,
    Window,
)
from respread.api.status import encode_status
from respread.api.structures import write_value
from respread.cluster.selectors import compile_selector
from tests.policy_specs import BAD_SPECS, CLUSTER, GOOD_SPECS

label_keys = st.from_regex(r"\A([a-z]{1,3}\.io/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?\Z")
label_values = st.from_regex(r"\A([A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?)?\Z")


def durations(least: timedelta, greatest: timedelta) -> st.SearchStrategy[timedelta]:
    milliseconds = timedelta(milliseconds=1)
    return st.integers(least // milliseconds, greatest // milliseconds).map(lambda count: count * milliseconds)


requirements = st.one_of(
    st.builds(
        LabelSelectorRequirement,
        label_keys,
        st.sampled_from(["In", "NotIn"]),
        st.lists(label_values, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(LabelSelectorRequirement, label_keys, st.sampled_from(["Exists", "DoesNotExist"])),
)
selectors = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(label_keys, label_values, max_size=3).map(Map),
    match_expressions=st.lists(requirements, max_size=3).map(tuple),
)
specs = st.builds(
    ClusterPolicySpec,
    mode=st.sampled_from(["DryRun", "Enforce"]),
    priority=st.integers(-1_000_000_000, 1_000_000_000),
    pod_selector=selectors,
    namespace_selector=selectors,
    constraints=st.builds(
        ConstraintRules,
        when_unsatisfiable=st.permutations(["DoNotSchedule", "ScheduleAnyway"]).flatmap(
            lambda both: st.sampled_from([tuple(both), tuple(both[:1])])
        ),
        topology_keys=st.lists(label_keys, unique=True, max_size=3).map(tuple),
        expected_domains=st.lists(
            st.builds(
                ExpectedDomains,
                topology_key=label_keys,
                values=st.lists(label_values, unique=True, min_size=1, max_size=3).map(tuple),
            ),
            unique_by=lambda each: each.topology_key,
            max_size=3,
        ).map(tuple),
    ),
    quiet_period=durations(timedelta(milliseconds=1), timedelta(hours=24)),
    limits=st.builds(
        Limits,
        in_flight=st.integers(1, 10_000),
        in_flight_per_namespace=st.integers(1, 10_000),
        in_flight_per_node=st.integers(1, 10_000),
        in_flight_per_workload=st.integers(1, 10_000) | st.integers(1, 100).map("{}%".format),
        per_hour=st.none() | st.integers(0, 1_000_000),
        per_hour_per_group=st.integers(0, 1_000_000) | st.integers(1, 100).map("{}%".format),
        failures_in_a_row=st.integers(0, 20),
    ),
    victims=st.builds(
        VictimRules,
        min_age=durations(timedelta(), timedelta(days=365)),
        priority_threshold=st.one_of(
            st.builds(PriorityThreshold, name=st.from_regex(r"\A[a-z]([-a-z0-9]{0,5}[a-z0-9])?\Z")),
            st.builds(PriorityThreshold, value=st.integers(-(2**31), 2**31 - 1)),
        ),
        local_storage=st.sampled_from(["Protect", "Evict"]),
        persistent_volume_claims=st.sampled_from(["Protect", "Evict"]),
    ),
    eviction=st.builds(EvictionOptions, grace_period_seconds=st.none() | st.integers(1, 86_400)),
    windows=st.lists(
        st.builds(
            Window,
            schedule=st.sampled_from(["0 2 * * *", "*/5 * 1 JAN MON", "0 0 L * *"]),
            duration=durations(timedelta(minutes=1), timedelta(days=7)),
            time_zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+5"]),
        ),
        max_size=3,
    ).map(tuple),
    prevention=st.builds(Prevention, pod_deletion_cost=st.sampled_from(["Disabled", "Enabled"])),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths(value: Any) -> list[tuple[str | int, ...]]:
    """Return the paths of all values in a JSON document."""
    found: list[tuple[str | int, ...]] = [()]
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            found += [(key, *rest) for rest in paths(each)]
    return found


FULL_SPEC = GOOD_SPECS["everything, cluster"][1]
ALL_PATHS = paths(FULL_SPEC)[1:]


@given(specs)
def test_a_spec_survives_a_round_trip(spec: ClusterPolicySpec) -> None:
    written = json.loads(json.dumps(write_value(spec)))
    policy = decode_policy(CLUSTER, {"metadata": {"name": "a"}, "spec": written})
    assert policy.problems == ()
    assert policy.spec == spec


@given(st.sampled_from(ALL_PATHS), json_values)
def test_a_policy_with_any_value_in_any_field_can_be_evaluated(path: tuple[str | int, ...], value: object) -> None:
    spec = json.loads(json.dumps(FULL_SPEC))
    at = spec
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    evaluate({"metadata": {"name": "a"}, "spec": spec})


@given(json_values)
@example(2**53 + 1)
def test_a_policy_with_an_arbitrary_spec_and_status_can_be_evaluated(value: object) -> None:
    evaluate({"metadata": {"name": "a"}, "spec": value, "status": value})
    evaluate({"metadata": {"name": "a", "generation": value, "creationTimestamp": value}, "status": {"summary": value}})


@given(st.text(alphabet="0123456789*/,-LW#?ABCDEFJMNORSTU ", max_size=30), st.text(max_size=30))
def test_a_policy_with_any_window_can_be_evaluated(schedule: str, time_zone: str) -> None:
    window = {"schedule": schedule, "duration": "1h", "timeZone": time_zone}
    evaluate({"metadata": {"name": "a"}, "spec": {"windows": [window]}})
    evaluate({"metadata": {"name": "a"}, "spec": {"windows": [{**window, "timeZone": "UTC"}]}})


def test_a_policy_with_an_invalid_spec_can_be_evaluated() -> None:
    for bad in BAD_SPECS:
        evaluate({"metadata": {"name": "a"}, "spec": bad.spec})


@given(durations(timedelta(), timedelta(days=4000)))
def test_durations_survive_a_round_trip(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value


def evaluate(document: dict[str, Any]) -> None:
    """Use a policy in every way that Respread does."""
    policy = decode_policy(CLUSTER, document)
    spec = policy.spec
    assert isinstance(spec, ClusterPolicySpec)
    for selector in (spec.pod_selector, spec.namespace_selector):
        compile_selector(selector)
    for window in spec.windows:
        next(CronSim(window.schedule, datetime(2026, 1, 1, tzinfo=ZoneInfo(window.time_zone))))
    threshold = spec.victims.priority_threshold
    assert (threshold.name is None) != (threshold.value is None)
    assert spec.limits.in_flight_of_workload(7) >= 1
    status = next_status(policy, decode_status(document), None, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert decode_status({"status": encode_status(status)}) == status
    ready = status.condition("Ready")
    assert ready is not None
    assert (ready.status == "True") == (not policy.problems)
