"""Replacements that quotas and limit ranges would reject. Real ones are in tests/integration."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from respread.api.reasons import Reason
from respread.cluster.decode.decoder import Decoder
from respread.cluster.objects import ResourceQuota
from respread.cluster.pod import Pod, PodSpec
from respread.eviction.owners.admission import LimitRange, admitted, why_limit_range_refuses, why_quota_refuses

UNIT = 10**9
RESOURCES = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "1"}}
SPEC: dict[str, Any] = {"containers": [{"name": "main", "resources": RESOURCES}]}


def quota(hard: dict[str, Any], used: dict[str, Any] | None = None, **spec: Any) -> ResourceQuota:
    given = {"metadata": {"name": "most"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used or {}}}
    return cast("ResourceQuota", Decoder().decode_object("resourcequotas", given))


def decoded(spec: dict[str, Any]) -> PodSpec:
    return cast("Pod", Decoder().decode_object("pods", {"metadata": {"name": "web-1"}, "spec": spec})).spec


def usage(spec: dict[str, Any]) -> dict[str, int]:
    return dict(decoded(spec).quota_usage)


def refused(spec: dict[str, Any], of: ResourceQuota, *others: dict[str, int], **freed: int) -> Reason | None:
    held = why_quota_refuses(decoded(spec), spec, [of], freed, others)
    return None if held is None else held.reason


class TestUsage:
    """The usage of a pod, by the names of quotas."""

    def test_a_pod_uses_its_requests_and_limits(self) -> None:
        assert usage(SPEC) == {
            "pods": UNIT,
            "count/pods": UNIT,
            "cpu": UNIT // 4,
            "requests.cpu": UNIT // 4,
            "memory": UNIT << 30,
            "requests.memory": UNIT << 30,
            "limits.cpu": UNIT,
        }

    def test_overhead_is_added_to_existing_limits(self) -> None:
        found = usage({**SPEC, "overhead": {"cpu": "750m", "memory": "1Gi"}})
        assert (found["requests.cpu"], found["limits.cpu"]) == (UNIT, 7 * UNIT // 4)
        assert "limits.memory" not in found

    def test_extended_resources_and_ephemeral_volume_claims_are_counted(self) -> None:
        claim = {"storageClassName": "fast", "resources": {"requests": {"storage": "5"}}}
        requests = {"example.org/gpu": "2", "hugepages-2Mi": "2Mi"}
        container = {"name": "a", "resources": {"requests": requests}}
        volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
        found = usage({"containers": [container], "volumes": [volume]})
        assert found["requests.example.org/gpu"] == 2 * UNIT
        assert found["hugepages-2Mi"] == found["requests.hugepages-2Mi"] == UNIT << 21
        assert found["persistentvolumeclaims"] == found["count/persistentvolumeclaims"] == UNIT
        assert found["requests.storage"] == found["fast.storageclass.storage.k8s.io/requests.storage"] == 5 * UNIT
        del claim["storageClassName"]
        found = usage({"containers": [container], "volumes": [volume]})
        assert [name for name in found if "storage" in name] == ["requests.storage"]


class TestQuota:
    """A replacement must fit in the quota beside the pod that it replaces."""

    @pytest.mark.parametrize(
        ("used", "reason"), [("2", None), ("3", Reason.REPLACEMENT_REFUSED), ("4", Reason.REPLACEMENT_REFUSED)]
    )
    def test_a_full_quota_refuses_the_replacement(self, used: str, reason: Reason | None) -> None:
        assert refused(SPEC, quota({"pods": "3", "services": "0"}, {"pods": used, "services": "0"})) is reason
        assert refused(SPEC, quota({"cpu": "250m"}, {"cpu": "1n"})) is Reason.REPLACEMENT_REFUSED

    def test_usage_that_is_freed_first_is_subtracted(self) -> None:
        assert refused(SPEC, quota({"pods": "3"}, {"pods": "3"}), pods=UNIT) is None
        assert refused(SPEC, quota({"pods": "3"}, {"pods": "4"}), pods=UNIT) is Reason.REPLACEMENT_REFUSED

    def test_replacements_in_flight_are_counted(self) -> None:
        assert refused(SPEC, quota({"pods": "3"}, {"pods": "1"}), {"pods": UNIT}) is None
        assert refused(SPEC, quota({"pods": "3"}, {"pods": "2"}), {"pods": UNIT}) is Reason.IN_MOTION
        assert refused(SPEC, quota({"pods": "3"}, {"pods": "2"}), {"limits.cpu": UNIT}) is None

    def test_a_quota_on_limits_requires_them_in_every_container(self) -> None:
        assert refused(SPEC, quota({"limits.memory": "9"}, {"limits.memory": "0"})) is Reason.REPLACEMENT_REFUSED
        assert refused(SPEC, quota({"limits.ephemeral-storage": "9"})) is None
        for which, cpu in (("requests", "1"), ("limits", "1"), ("limits", None)):
            whole = {**SPEC, "resources": {which: {"cpu": cpu} if cpu else {}}}
            found = refused(whole, quota({"limits.memory": "9"}, {"limits.memory": "0"}))
            assert found is (None if cpu else Reason.REPLACEMENT_REFUSED)
        first = {**SPEC, "initContainers": [{"name": "first"}]}
        assert refused(first, quota({"cpu": "9"}, {"cpu": "0"})) is Reason.REPLACEMENT_REFUSED

    def test_a_quota_whose_status_is_behind_holds_the_move(self) -> None:
        assert refused(SPEC, quota({"pods": "3"})) is Reason.IN_MOTION
        behind = msgspec.structs.replace(quota({"pods": "3"}, {"pods": "0"}), hard=quota({"pods": "9"}).hard)
        assert refused(SPEC, behind) is Reason.IN_MOTION
        same = msgspec.structs.replace(
            quota({"memory": "2Gi"}, {"memory": "0"}), wanted=quota({"memory": "2048Mi"}).wanted
        )
        assert refused(SPEC, same) is None

    @pytest.mark.parametrize(
        ("scopes", "counts"),
        [
            ({"scopes": ["BestEffort"]}, False),
            ({"scopes": ["NotBestEffort"]}, True),
            ({"scopes": ["NotBestEffort", "Terminating"]}, False),
            ({"scopes": ["NotTerminating"]}, True),
            ({"scopes": ["PriorityClass"]}, True),
            ({"scopes": ["CrossNamespacePodAffinity"]}, False),
            ({"scopes": ["SomethingNew"]}, False),
        ],
        ids=str,
    )
    def test_a_quota_counts_only_pods_in_its_scopes(self, scopes: dict[str, Any], *, counts: bool) -> None:
        spec = {**SPEC, "priorityClassName": "high"}
        assert (refused(spec, quota({"pods": "0"}, {"pods": "0"}, **scopes)) is not None) is counts

    @pytest.mark.parametrize(
        ("operator", "values", "counts"),
        [
            ("In", ["high"], True),
            ("In", ["low"], False),
            ("NotIn", ["high"], False),
            ("NotIn", ["low"], True),
            ("Exists", [], True),
            ("DoesNotExist", [], False),
        ],
    )
    def test_a_quota_with_a_priority_class_scope_counts_its_pods(
        self, operator: str, values: list[str], *, counts: bool
    ) -> None:
        expression = {"scopeName": "PriorityClass", "operator": operator, "values": values}
        of = quota({"pods": "0"}, {"pods": "0"}, scopeSelector={"matchExpressions": [expression]})
        assert (refused({**SPEC, "priorityClassName": "high"}, of) is not None) is counts

    def test_a_quota_with_a_cross_namespace_affinity_scope_counts_its_pods(self) -> None:
        of = quota({"pods": "0"}, {"pods": "0"}, scopes=["CrossNamespacePodAffinity"])
        term = {"topologyKey": "zone", "namespaceSelector": {}}
        preferred = [{"weight": 1, "podAffinityTerm": term}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        for affinity in (
            {"podAffinity": required},
            {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        ):
            assert refused({**SPEC, "affinity": affinity}, of) is Reason.REPLACEMENT_REFUSED


@pytest.mark.parametrize(
    ("limit", "refuses"),
    [
        ({"type": "Container", "min": {"cpu": "250m"}}, False),
        ({"type": "Container", "min": {"cpu": "251m"}}, True),
        ({"type": "Container", "min": {"ephemeral-storage": "1"}}, True),
        ({"type": "Container", "max": {"cpu": "1"}}, False),
        ({"type": "Container", "max": {"cpu": "999m"}}, True),
        ({"type": "Container", "max": {"memory": "2Gi"}}, True),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}}, False),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "3"}}, True),
        ({"type": "Container", "maxLimitRequestRatio": {"memory": "9"}}, True),
        ({"type": "Container", "maxLimitRequestRatio": {"ephemeral-storage": "9"}}, True),
        ({"type": "Pod", "min": {"cpu": "250m"}}, False),
        ({"type": "Pod", "max": {"cpu": "500m"}}, True),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1"}}, False),
    ],
    ids=str,
)
def test_limit_ranges_are_applied_to_a_template(limit: dict[str, Any], *, refuses: bool) -> None:
    given = {"metadata": {"name": "most"}, "spec": {"limits": [limit]}}
    held = why_limit_range_refuses(SPEC, [msgspec.convert(given, type=LimitRange)])
    assert (held is not None) is refuses


@pytest.mark.parametrize(
    ("restart_policy", "most", "refuses"),
    [("Always", "2", False), ("Always", "1999m", True), (None, "1", False), (None, "999m", True)],
)
def test_a_limit_range_for_pods_adds_sidecars_and_takes_the_largest_of_other_init_containers(
    restart_policy: str | None, most: str, *, refuses: bool
) -> None:
    first = {"name": "first", "resources": RESOURCES, **({"restartPolicy": restart_policy} if restart_policy else {})}
    given = {"metadata": {"name": "most"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": most}}]}}
    held = why_limit_range_refuses({**SPEC, "initContainers": [first]}, [msgspec.convert(given, type=LimitRange)])
    assert (held is not None) is refuses


@pytest.mark.parametrize(
    ("limit", "refuses"),
    [
        ({"max": {"storage": "5Gi"}}, False),
        ({"max": {"storage": "4Gi"}}, True),
        ({"min": {"storage": "5Gi"}}, False),
        ({"min": {"storage": "6Gi"}}, True),
        ({"min": {"storage": "6Gi"}, "type": "example.org/Claim"}, False),
    ],
    ids=str,
)
def test_limit_ranges_are_applied_to_the_claims_of_ephemeral_volumes(limit: dict[str, Any], *, refuses: bool) -> None:
    claim = {"resources": {"requests": {"storage": "5Gi"}}}
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    given = {"metadata": {"name": "most"}, "spec": {"limits": [{"type": "PersistentVolumeClaim", **limit}]}}
    held = why_limit_range_refuses({**SPEC, "volumes": [volume]}, [msgspec.convert(given, type=LimitRange)])
    assert (held is not None) is refuses


def test_a_message_about_many_containers_names_three() -> None:
    containers = [{"name": f"container-{number}"} for number in range(1_000)]
    spec = {"containers": containers}
    held = why_quota_refuses(decoded(spec), spec, [quota({"cpu": "9"}, {"cpu": "0"})], {}, [])
    assert "(container-0, container-1, container-2, …)" in str(held)


class TestAdmitted:
    """The effect of admission on a template."""

    POD: dict[str, Any] = {  # noqa: RUF012 - never changed
        "metadata": {"name": "web-1", "namespace": "default", "uid": "uid", "labels": {"app": "web"}},
        "spec": {
            "containers": [
                {"name": "main", "resources": {"requests": {"cpu": "1"}}},
                {"name": "proxy", "resources": {"requests": {"cpu": "100m"}}},
            ]
        },
    }

    def requests(self, template: dict[str, Any], ranges: list[LimitRange] | None) -> list[dict[str, Any]]:
        made = admitted({"spec": {"containers": [{"name": "main", **template}]}}, self.POD, ranges)
        return [each["resources"]["requests"] for each in made["spec"]["containers"]]

    def test_injected_containers_are_expected_again(self) -> None:
        assert self.requests({}, []) == [{}, {"cpu": "100m"}]

    def test_without_limit_ranges_their_defaults_are_read_from_the_pod(self) -> None:
        assert self.requests({}, None)[0] == {"cpu": "1"}
        own = {"resources": {"requests": {"cpu": "2"}}}
        assert self.requests(own, None)[0] == {"cpu": "2"}

    @pytest.mark.parametrize(
        ("template", "expected"), [("", ("high", 10)), ("high", ("high", 10)), ("low", ("low", None))]
    )
    def test_priority_and_overhead_are_those_of_the_pod_if_the_classes_are(
        self, template: str, expected: tuple[str, int | None]
    ) -> None:
        own = {"priorityClassName": "high", "priority": 10, "runtimeClassName": "high", "overhead": {"cpu": "1"}}
        pod = {**self.POD, "spec": {**self.POD["spec"], **own}}
        asked = {"containers": [], "priorityClassName": template, "runtimeClassName": template}
        made = admitted({"spec": asked}, pod, [])["spec"]
        assert (made["priorityClassName"], made.get("priority")) == expected
        assert ("overhead" in made) is (template == "high")

    def test_the_first_limit_range_with_a_default_counts(self) -> None:
        of_claims = {"type": "PersistentVolumeClaim", "defaultRequest": {"storage": "1"}}
        items = [[of_claims, {"type": "Container", "defaultRequest": {"cpu": cpu}}] for cpu in "34"]
        given = [{"metadata": {"name": f"with-{each[1]}"}, "spec": {"limits": each}} for each in items]
        ranges = msgspec.convert(given, type=list[LimitRange])
        assert self.requests({}, ranges)[0] == {"cpu": "3"}
        assert self.requests({"resources": {"limits": {"cpu": "5"}}}, ranges)[0] == {"cpu": "5"}
