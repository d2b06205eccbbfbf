"""Protected pods are never evicted and have a reason, and the other victims have an order."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from immutables import Map

from respread.api.policy import PriorityThreshold, TrustedController, VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.planning.victims.protection import (
    Protection,
    deletion_cost,
    siblings_of,
    threshold_value,
    victim_order,
    why_owner_unknown,
)
from tests.worlds import NOW, cluster, pod, spec

MANIFESTS = Path(__file__).parents[3] / "manifests"
DEFAULTS = Protection.of(VictimRules())


def owned_by(kind: str, api_version: str = "apps/v1") -> OwnerReference:
    return OwnerReference(api_version, kind, "web", "uid-web")


def annotated(**annotations: str) -> dict[str, Any]:
    return {"annotations": Map(annotations)}


@pytest.mark.parametrize("kind", [("ReplicaSet",), ("StatefulSet",), ("ReplicationController", "v1")])
def test_pods_of_a_replacing_controller_may_be_evicted(kind: tuple[str, ...]) -> None:
    assert DEFAULTS.of_pod(pod("web-1", "node-1", spec(), controller=owned_by(*kind)), NOW) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"is_mirror": True, "controller": None}, Reason.MIRROR_POD),
        ({"controller": owned_by("ReplicaSet", "example.com/v1")}, Reason.UNKNOWN_REPLACEMENT),
        ({"controller": owned_by("ReplicationController", "apps/v1")}, Reason.UNKNOWN_REPLACEMENT),
        ({"controller": None, "creation_timestamp": NOW}, Reason.BARE_POD),  # the lasting one first
        ({"deletion_timestamp": NOW}, Reason.IN_MOTION),
        ({"phase": "Succeeded"}, Reason.FINISHED_POD),
        ({"phase": "Failed"}, Reason.FINISHED_POD),
        ({"creation_timestamp": NOW - timedelta(seconds=59)}, Reason.TOO_YOUNG),
        ({"of": spec(priority=2_000_001_000)}, Reason.PRIORITY_TOO_HIGH),
    ],
)
def test_some_pods_are_never_evicted(fields: dict[str, Any], reason: Reason) -> None:
    """Beside those of `test_blocked_reasons`."""
    held = DEFAULTS.of_pod(pod("web-1", "node-1", fields.pop("of", spec()), **fields), NOW)
    assert held is not None
    assert held.reason == reason


def test_a_pod_that_lost_its_controller_has_no_siblings() -> None:
    web, orphan = pod("web-1", "node-1", spec()), pod("web-2", "node-1", spec(), controller=None)
    assert [[*siblings_of(cluster([], [web, orphan]), each)] for each in (web, orphan)] == [[web], []]


def test_the_minimum_age_is_exact_and_zero_disables_it() -> None:
    just_old_enough = pod("web-1", "node-1", spec(), creation_timestamp=NOW - timedelta(minutes=1))
    assert DEFAULTS.of_pod(just_old_enough, NOW) is None
    any_age = Protection.of(VictimRules(min_age=timedelta(0)))
    assert any_age.of_pod(pod("web-1", "node-1", spec(), creation_timestamp=NOW + timedelta(seconds=5)), NOW) is None


def test_a_policy_sets_which_pods_are_protected() -> None:
    local = pod("web-1", "node-1", spec(has_local_storage=True))
    assert Protection.of(VictimRules(local_storage="Evict")).of_pod(local, NOW) is None
    protecting = Protection.of(VictimRules(persistent_volume_claims="Protect"))
    for claims in ({"shared_claims": ("data",)}, {"stateful_claims": ("data",)}, {"ephemeral_volumes": ("data",)}):
        claiming = pod("web-1", "node-1", spec(**claims))
        assert DEFAULTS.of_pod(claiming, NOW) is None
        held = protecting.of_pod(claiming, NOW)
        assert held is not None
        assert held.reason == Reason.PERSISTENT_VOLUME_CLAIM


def test_a_priority_threshold_is_a_value_or_a_class_even_a_missing_one() -> None:
    assert [threshold_value(PriorityThreshold(value=value), {}) for value in (-5, 0)] == [-5, 0]
    assert threshold_value(PriorityThreshold(name="system-node-critical"), {}) == 2_000_001_000
    assert threshold_value(PriorityThreshold(name="business"), {"business": 1000}) == 1000
    with pytest.raises(ValueError, match=r"priorityThreshold.name: there is no PriorityClass 'busyness'"):
        Protection.of(VictimRules(priority_threshold=PriorityThreshold(name="busyness")), {"business": 1000})
    low = Protection.of(VictimRules(priority_threshold=PriorityThreshold(name="business")), {"business": 1000})
    assert low.of_pod(pod("web-1", "node-1", spec(priority=999)), NOW) is None
    held = low.of_pod(pod("web-1", "node-1", spec(priority=1000)), NOW)
    assert held is not None
    assert "1000 (that of PriorityClass business)" in held.message


def test_respread_never_evicts_itself() -> None:
    deployment = yaml.safe_load((MANIFESTS / "base" / "deployment.yaml").read_text())
    labels = Map(deployment["spec"]["template"]["metadata"]["labels"])
    held = DEFAULTS.of_pod(pod("respread-1", "node-1", spec(), labels=labels, namespace="respread"), NOW)
    assert held is not None
    assert held.reason == Reason.PROTECTED_POD
    other = labels.set("app.kubernetes.io/component", "dashboard")
    assert DEFAULTS.of_pod(pod("respread-ui-1", "node-1", spec(), labels=other, namespace="respread"), NOW) is None


def test_victims_are_ordered_by_readiness_deletion_cost_priority_and_age() -> None:
    hour, minute = NOW - timedelta(hours=1), NOW - timedelta(minutes=1)
    unready = pod(
        "a", "n", spec(priority=9), ready=False, **annotated(**{"controller.kubernetes.io/pod-deletion-cost": "7"})
    )
    cheap = pod("b", "n", spec(priority=9), **annotated(**{"controller.kubernetes.io/pod-deletion-cost": "-1"}))
    unimportant = pod("c", "n", spec(priority=-1), creation_timestamp=hour)
    young = pod("d", "n", spec(), creation_timestamp=minute)
    old = pod("e", "n", spec(), creation_timestamp=hour)
    expected = [unready, cheap, unimportant, young, old]
    assert sorted([old, cheap, young, unready, unimportant], key=victim_order) == expected


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        *((str(number), number) for number in (0, -12, 2147483647, -2147483648)),
        *dict.fromkeys(("2147483648", "+1", "01", "1.5", "", "٣"), 0).items(),
    ],
)
def test_deletion_costs_are_parsed_as_in_kubernetes(text: str, cost: int) -> None:
    annotations = {"controller.kubernetes.io/pod-deletion-cost": text}
    assert deletion_cost(pod("web-1", "node-1", spec(), **annotated(**annotations))) == cost
    assert deletion_cost(pod("web-1", "node-1", spec())) == 0


@pytest.mark.parametrize(
    ("owner", "trusted", "known"),
    [
        (None, (), True),
        (owned_by("Deployment"), (), True),
        (owned_by("Deployment", "apps.example.org/v1"), (), False),
        (owned_by("Rollout", "argoproj.io/v1alpha1"), (), True),
        (owned_by("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"), (), False),
        (owned_by("LeaderWorkerSet", "example.org/v1"), (("example.org", "LeaderWorkerSet"),), True),
        (owned_by("Rollout", "example.org/v1beta1"), (("example.org", "Rollout"),), True),
        (owned_by("Rollout", "example.org/v1"), (("argoproj.io", "Rollout"),), False),
        (owned_by("Pod", "v1"), (("apps", "Pod"),), False),
        (owned_by("Pod", "v1"), (("", "Pod"),), True),
    ],
)
def test_owners_of_controllers_must_be_known_or_trusted(
    owner: OwnerReference | None, trusted: tuple[tuple[str, str], ...], *, known: bool
) -> None:
    kinds = [TrustedController(group=group, kind=kind) for group, kind in trusted]
    held = why_owner_unknown(owned_by("ReplicaSet"), owner, kinds)
    assert (held is None) is known
    if owner is not None and held is not None:
        assert held.reason is Reason.UNKNOWN_OWNER
        assert f"belongs to {owner.kind} web ({owner.api_version})" in held.message
        restarts = owner.kind == "Pod" or owner.api_version.startswith("leaderworkerset")
        assert ("group restarts" in held.message or "restarts the whole group" in held.message) is restarts
