"""Policies are decoded completely or with every mistake named, and decoding never fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from immutables import Map

from respread.api.decoding import NotAPolicyError, decode_manifest, decode_policy, decode_status
from respread.api.fields import LabelSelector, LabelSelectorRequirement, Problem
from respread.api.policy import (
    API_VERSION,
    ClusterPolicySpec,
    ConstraintRules,
    ExpectedDomains,
    Limits,
    Policy,
    PolicySpec,
    PriorityThreshold,
    Window,
)
from respread.api.status import Condition, PolicyStatus, Summary, encode_status
from respread.api.structures import write_value
from tests.policy_specs import BAD_SPECS, CLUSTER, GOOD_SPECS, NAMESPACED, WRONG_THOUGH_ACCEPTED, BadSpec, enforces


def decoded(spec: object, kind: Any = CLUSTER) -> Policy:
    return decode_policy(kind, {"metadata": {"name": "default", "namespace": "shop"}, "spec": spec})


def problems(spec: object, kind: Any = CLUSTER) -> dict[str, str]:
    return {problem.field: problem.message for problem in decoded(spec, kind).problems}


def test_a_policy_is_identified_by_kind_namespace_name_and_uid() -> None:
    metadata = {
        "name": "default",
        "namespace": "shop",
        "uid": "u-1",
        "generation": 7,
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    policy = decode_policy(NAMESPACED, {"metadata": metadata, "spec": {}, "status": {"observedGeneration": 6}})
    assert policy == Policy(
        kind=NAMESPACED,
        namespace="shop",
        object_name="default",
        uid="u-1",
        generation=7,
        creation_timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        spec=PolicySpec(),
    )
    assert policy.name == "shop/default"
    assert not policy.is_cluster_policy


def test_the_full_name_of_a_cluster_policy_is_its_name() -> None:
    policy = decode_policy(CLUSTER, {"metadata": {"name": "default"}})
    assert (policy.name, policy.namespace, policy.is_cluster_policy) == ("default", "", True)
    assert policy.spec == ClusterPolicySpec()


def test_every_field_is_decoded() -> None:
    spec = decoded(GOOD_SPECS["everything, cluster"][1]).spec
    assert isinstance(spec, ClusterPolicySpec)
    assert spec.mode == "Enforce"
    assert spec.priority == -5
    assert spec.namespace_selector == LabelSelector(match_labels=Map(team="shop"))
    assert spec.pod_selector.match_labels == Map({"app.kubernetes.io/name": "web", "empty": ""})
    assert spec.pod_selector.match_expressions[0] == LabelSelectorRequirement("tier", "In", ("front", "back"))
    assert spec.constraints == ConstraintRules(
        when_unsatisfiable=("DoNotSchedule", "ScheduleAnyway"),
        topology_keys=("topology.kubernetes.io/zone", "rack"),
        expected_domains=(
            ExpectedDomains(topology_key="topology.kubernetes.io/zone", values=("zone-a", "zone-b", "zone-c")),
            ExpectedDomains(topology_key="rack", values=("1",)),
            ExpectedDomains(topology_key="pool", values=("a",), provision="Request", priority_class_name="low.est"),
        ),
    )
    assert spec.quiet_period == timedelta(seconds=90)
    assert spec.limits == Limits(
        in_flight=100,
        in_flight_per_namespace=50,
        in_flight_per_node=20,
        in_flight_per_workload="25%",
        per_hour=1000,
        per_hour_per_group=0,
        failures_in_a_row=0,
    )
    assert spec.victims.min_age == timedelta(minutes=90)
    assert spec.victims.min_replicas == 3
    assert spec.victims.priority_threshold == PriorityThreshold(value=1_000_000)
    assert (spec.victims.local_storage, spec.victims.persistent_volume_claims) == ("Evict", "Protect")
    assert spec.eviction.grace_period_seconds == 5
    assert spec.windows[0] == Window(schedule="0 2 * * *", duration=timedelta(hours=2), time_zone="Europe/Berlin")
    assert spec.windows[1].time_zone == "UTC"
    assert spec.prevention.pod_deletion_cost == "Enabled"


@pytest.mark.parametrize("name", GOOD_SPECS)
def test_valid_specs_have_no_problems_and_survive_a_round_trip(name: str) -> None:
    kind, spec = GOOD_SPECS[name]
    policy = decoded(spec, kind)
    assert policy.problems == ()
    assert decoded(write_value(policy.spec), kind).spec == policy.spec


@pytest.mark.parametrize("bad", BAD_SPECS, ids=lambda bad: bad.id)
def test_a_spec_that_the_api_server_rejects_has_a_problem(bad: BadSpec) -> None:
    found = decoded(bad.spec, bad.kind).problems
    assert len(found) == 1, found
    assert found[0].field.startswith(bad.field)
    assert found[0].message


@pytest.mark.parametrize(("spec", "field", "message"), WRONG_THOUGH_ACCEPTED)
def test_a_mistake_that_the_api_server_does_not_detect_is_a_problem(
    spec: dict[str, Any], field: str, message: str
) -> None:
    found = problems(spec)
    assert list(found) == [field]
    assert message in found[field]


def test_all_problems_are_reported_at_once_and_valid_fields_are_kept() -> None:
    policy = decoded(
        {
            "mode": "Enforce",
            "quietPeriod": "soon",
            "limits": {"inFlight": 0, "perHour": 9},
            "windows": [{"schedule": "0 0 30 2 *", "duration": "1h", "timeZone": "Nowhere"}],
        }
    )
    assert [problem.field for problem in policy.problems] == [
        "spec.quietPeriod",
        "spec.limits.inFlight",
        "spec.windows[0].timeZone",
        "spec.windows[0].schedule",
    ]
    assert policy.spec.limits == Limits(per_hour=9)
    assert policy.spec.quiet_period == PolicySpec().quiet_period


def test_invalid_fields_keep_their_defaults() -> None:
    spec = decoded(
        {
            "victims": {"minAge": "5m", "priorityThreshold": {"name": "a", "value": 1}},
            "podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "namespaceSelector": {"matchLabels": {"a b": "c"}},
            "windows": [{"schedule": "0 0 30 2 *", "duration": "1h"}],
        }
    ).spec
    default = ClusterPolicySpec()
    assert isinstance(spec, ClusterPolicySpec)
    assert spec.victims.min_age == timedelta(minutes=5)
    assert spec.victims.priority_threshold == default.victims.priority_threshold
    assert (spec.pod_selector, spec.namespace_selector) == (default.pod_selector, default.namespace_selector)
    assert spec.windows == ()


def test_a_policy_with_problems_does_not_enforce() -> None:
    assert enforces(decoded({"mode": "Enforce"}))
    assert not enforces(decoded({"mode": "DryRun"}))
    assert not enforces(decoded({"mode": "Enforce", "quietPeriod": "soon"}))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"mode": "enforce"}, 'spec.mode: must be DryRun or Enforce, not "enforce"; did you mean Enforce?'),
        ({"quitPeriod": "3s"}, "spec.quitPeriod: there is no such field; did you mean quietPeriod?"),
        ({"quietPeriod": "3"}, 'spec.quietPeriod: must be a duration such as 30s, 5m or 1h30m, not "3"'),
        ({"quietPeriod": "48h"}, 'spec.quietPeriod: must be from 1ms to 24h, not "48h"'),
        ({"limits": {"inFlight": 0}}, "spec.limits.inFlight: must be a whole number from 1 to 10000, not 0"),
        (
            {"limits": {"inFlightPerWorkload": "200%"}},
            (
                "spec.limits.inFlightPerWorkload: "
                'must be a number from 1 to 10000, or a percentage from 1% to 100%, not "200%"'
            ),
        ),
        (
            {"constraints": {"topologyKeys": ["a b"]}},
            'spec.constraints.topologyKeys[0]: must be a label key, such as topology.kubernetes.io/zone, not "a b"',
        ),
        ({"constraints": {"topologyKeys": ["a", "a"]}}, 'spec.constraints.topologyKeys[1]: is repeated: "a"'),
        (
            {"podSelector": {"matchLabels": {"app": 3}}},
            'spec.podSelector.matchLabels: must be an object whose values are strings, not {"app": 3}',
        ),
        ({"windows": [{"schedule": "0 0 * * *"}]}, "spec.windows[0].duration: is required"),
        ({"windows": "always"}, 'spec.windows: must be a list, not "always"'),
        ("nothing", 'spec: must be an object, not "nothing"'),
    ],
)
def test_the_message_of_a_problem_says_what_to_do(spec: object, problem: str) -> None:
    assert [str(each) for each in decoded(spec).problems] == [problem]


@pytest.mark.parametrize("document", [None, 3, "policy", [], {}, {"metadata": None}, {"metadata": {"name": ""}}])
def test_a_document_that_is_not_an_object_with_a_name_is_rejected(document: object) -> None:
    with pytest.raises(NotAPolicyError, match=r"name|must be an object"):
        decode_policy(CLUSTER, document)


def test_malformed_metadata_is_ignored() -> None:
    metadata = {"name": "a", "uid": 3, "generation": True, "creationTimestamp": "yesterday", "namespace": []}
    policy = decode_policy(NAMESPACED, {"metadata": metadata})
    assert (policy.uid, policy.generation, policy.creation_timestamp, policy.namespace) == ("", 0, None, "")


def test_the_kind_of_a_policy_comes_from_its_manifest() -> None:
    cluster = {"apiVersion": API_VERSION, "kind": "ClusterRebalancePolicy", "metadata": {"name": "a"}}
    own = {"apiVersion": API_VERSION, "kind": "RebalancePolicy", "metadata": {"name": "a"}}
    assert decode_manifest(cluster).name == "a"
    assert decode_manifest(own, default_namespace="shop").name == "shop/a"
    assert decode_manifest({**own, "metadata": {"name": "a", "namespace": "blog"}}).name == "blog/a"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must be an object"),
        ({"apiVersion": "v1", "kind": "Pod"}, "apiVersion: a policy's is respread.dev/v1alpha1"),
        ({"apiVersion": API_VERSION, "kind": "Rebalance"}, "kind: must be RebalancePolicy or ClusterRebalancePolicy"),
    ],
)
def test_a_manifest_of_another_kind_is_rejected(document: object, message: str) -> None:
    with pytest.raises(NotAPolicyError, match=message):
        decode_manifest(document)


@pytest.mark.parametrize(
    ("limit", "replicas", "expected"),
    [(1, 100, 1), (5, 2, 5), ("10%", 100, 10), ("10%", 19, 1), ("10%", 0, 1), ("34%", 3, 1), ("100%", 7, 7)],
)
def test_a_workloads_limit_is_a_number_or_a_percentage_of_its_replicas(
    limit: int | str, replicas: int, expected: int
) -> None:
    assert Limits(in_flight_per_workload=limit).in_flight_of_workload(replicas) == expected


def test_a_status_survives_a_round_trip() -> None:
    status = PolicyStatus(
        observed_generation=3,
        conditions=(
            Condition(
                type="Ready", status="True", reason="Valid", last_transition_time=datetime(2026, 1, 2, tzinfo=UTC)
            ),
        ),
        summary=Summary(groups=3, violated=1, evicted=87),
        last_plan_time=datetime(2026, 1, 2, 3, tzinfo=UTC),
    )
    written = encode_status(status)
    assert written["conditions"][0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    assert written["violations"] == []
    assert "lastEvictionTime" not in written
    assert decode_status({"status": written}) == status


@pytest.mark.parametrize("document", [None, {}, {"status": None}, {"status": "fine"}, {"status": {"conditions": 3}}])
def test_an_absent_or_malformed_status_decodes_as_an_empty_one(document: object) -> None:
    assert decode_status(document) == PolicyStatus()


def test_the_valid_parts_of_a_malformed_status_are_kept() -> None:
    status = {"summary": {"evicted": 87, "groups": "many"}, "conditions": [{"type": "Ready"}], "future": 1}
    assert decode_status({"status": status}) == PolicyStatus(summary=Summary(evicted=87))


def test_a_problem_is_printed_as_field_and_message() -> None:
    assert str(Problem("spec.mode", "must be set")) == "spec.mode: must be set"
