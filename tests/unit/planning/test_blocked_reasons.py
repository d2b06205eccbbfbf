"""A group that stays violated has a reason and a message with advice for the on-call engineer.

Every case is a complete plan of a small cluster in which zone a has too many pods and can't be restored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector, Problem
from respread.api.policy import PriorityThreshold, VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod, PodAffinityTerm, PodSpec
from tests.plans import plan_cluster
from tests.unit.planning.blocked_plans import OF_WEB, WEB, blocked, default_policy, plan_of, three_in_a, two_zones
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, pods, spec, taint


class Case(NamedTuple):
    """The obstacle on zone b, or of the pods."""

    of_b: Mapping[str, Any] = {}
    pod_fields: Mapping[str, Any] = {}
    victims: VictimRules = VictimRules()
    of: PodSpec = WEB
    reason: Reason = Reason.NO_FEASIBLE_NODE
    words: Sequence[str] = ()


CORDON = taint("node.kubernetes.io/unschedulable")
UNKNOWN_VALUE = ", which counts as 'never', the only value there is"
DESCHEDULER = "descheduler.alpha.kubernetes.io"
WITHOUT = "; without it, the pod may be evicted"
REPLICAS = "no pod in a may be evicted: web-a1-0 and 2 more, because "


def owner(kind: str, api_version: str = "apps/v1") -> OwnerReference:
    return OwnerReference(api_version, kind, "web", "uid-web")


def annotated(key: str, value: str) -> dict[str, Any]:
    return {"annotations": Map({key: value})}


CASES: Mapping[str, Case] = {
    "a cordoned node": Case(
        of_b={"unschedulable": True, "taints": (CORDON,)},
        words=["b holds the fewest pods, 0", "b1 is cordoned (spec.unschedulable)", "nodeTaintsPolicy: Honor"],
    ),
    "a taint": Case(
        of_b={"taints": (taint("dedicated", value="gpu"),)},
        words=["b holds the fewest pods, 0", "b1 has the taint dedicated=gpu:NoSchedule", "nodeTaintsPolicy: Honor"],
    ),
    "no place for a pod": Case(
        of_b={"pods": 0}, words=["web-a1-0 (b1 has room for 0 pods and has 0 already: make room there, or add nodes)"]
    ),
    "not enough CPU": Case(
        of=spec(constraint(), requests=Map(cpu=100, memory=1 << 39)),
        words=["b1 needs memory 512Gi, has 256Gi free of 256Gi: make room there, or add nodes"],
    ),
    "affinity that the constraint ignores": Case(
        of=spec(constraint(node_affinity_policy="Ignore"), node_selector=Map({ZONE: "a"})),
        words=[
            "b1 does not satisfy nodeSelector topology.kubernetes.io/zone=a: let the pods' affinity match nodes there"
        ],
    ),
    "a scheduler that is not known": Case(
        of=spec(constraint(), scheduler_name="fancy"),
        reason=Reason.UNKNOWN_REPLACEMENT,
        words=["where a replacement for web-a1-0 would land is not known", "scheduler, fancy,"],
    ),
    **{
        words: Case(of=spec(constraint(), **{f: True}), reason=Reason.UNKNOWN_REPLACEMENT, words=["web-a1-0", words])
        for f, words in (("has_scheduling_gates", "scheduling gates"), ("has_resource_claims", "dynamic resources"))
    },
    "no controller": Case(
        pod_fields={"controller": None},
        reason=Reason.BARE_POD,
        words=[REPLICAS + "no controller owns it", "a Deployment or StatefulSet would"],
    ),
    "a DaemonSet": Case(
        pod_fields={"controller": owner("DaemonSet")},
        reason=Reason.DAEMON_SET_POD,
        words=[REPLICAS + "DaemonSet web runs one on each of its nodes"],
    ),
    "static pods": Case(
        pod_fields={"controller": owner("Node", "v1")}, reason=Reason.MIRROR_POD, words=[REPLICAS + "it mirrors"]
    ),
    "a Job": Case(
        pod_fields={"controller": owner("Job", "batch/v1")},
        reason=Reason.UNKNOWN_REPLACEMENT,
        words=[REPLICAS + "what Job web (batch/v1) would put in its place is not known"],
    ),
    **{
        f"the annotation {key}: {value}": Case(
            pod_fields=annotated(key, value),
            reason=Reason.PROTECTED_POD,
            words=[f"{REPLICAS}its annotation {key} says '{value}'{words}"],
        )
        for key, value, words in (
            ("respread.dev/evict", "never", WITHOUT),
            ("respread.dev/evict", "nope", UNKNOWN_VALUE + WITHOUT),
            ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false", ""),
            ("karpenter.sh/do-not-disrupt", "true", ""),
        )
    },
    "an annotation of any value": Case(
        pod_fields=annotated(f"{DESCHEDULER}/prefer-no-eviction", ""),
        reason=Reason.PROTECTED_POD,
        words=[f"{REPLICAS}it has the annotation {DESCHEDULER}/prefer-no-eviction"],
    ),
    "a system priority": Case(
        of=spec(constraint(), priority=2_000_000_000),
        reason=Reason.PRIORITY_TOO_HIGH,
        words=[REPLICAS + "its priority, 2000000000, is not below", "PriorityClass system-cluster-critical"],
    ),
    "a priority above the threshold": Case(
        of=spec(constraint(), priority=10),
        victims=VictimRules(priority_threshold=PriorityThreshold(value=10)),
        reason=Reason.PRIORITY_TOO_HIGH,
        words=["victims.priorityThreshold of 10; a higher threshold would allow it"],
    ),
    "local storage": Case(
        of=spec(constraint(), has_local_storage=True),
        reason=Reason.LOCAL_STORAGE,
        words=[REPLICAS + "it keeps data on its node", "victims.localStorage: Evict would allow it"],
    ),
    "claims": Case(
        of=spec(constraint(), shared_claims=("data",)),
        victims=VictimRules(persistent_volume_claims="Protect"),
        reason=Reason.PERSISTENT_VOLUME_CLAIM,
        words=[REPLICAS + "it uses PersistentVolumeClaims; victims.persistentVolumeClaims: Evict would allow it"],
    ),
    "young pods": Case(
        pod_fields={"creation_timestamp": NOW - timedelta(seconds=20)},
        reason=Reason.TOO_YOUNG,
        words=[
            REPLICAS
            + "it is younger than the policy's victims.minAge, 60 s; it is old enough at 2026-11-21T09:00:40+00:00"
        ],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_blocked_group_has_the_reason_and_the_message_of_its_obstacle(case: Case) -> None:
    snapshot = cluster(two_zones(**case.of_b), three_in_a(case.of, **case.pod_fields))
    found = blocked(snapshot, default_policy(victims=case.victims))
    assert found.reason == case.reason
    for words in case.words:
        assert words in found.message
    assert plan_of(snapshot, default_policy(victims=case.victims)).held_pods == {"default": {case.reason: 3}}


def test_the_reason_of_most_pods_is_reported_and_each_reason_names_a_pod() -> None:
    never = pods({"a1": 2}, WEB, prefix="never", **annotated("respread.dev/evict", "never"))
    young = pods({"a1": 1}, WEB, prefix="young", creation_timestamp=NOW)
    in_b = pods({"b1": 1}, WEB, prefix="away", creation_timestamp=NOW)
    found = blocked(cluster(two_zones(), [*never, *young, *in_b]))
    assert found.reason == Reason.PROTECTED_POD
    assert found.message == (
        "no pod in a may be evicted: never-a1-0 and 1 more, because its annotation respread.dev/evict says 'never'; "
        "without it, the pod may be evicted; young-a1-0, because it is younger than the policy's victims.minAge, 60 s; "
        "it is old enough at 2026-11-21T09:01:00+00:00"
    )
    owners = {"bare": None, "job": owner("Job", "batch/v1")}
    more = [each for name, of in owners.items() for each in pods({"a1": 1}, WEB, prefix=name, controller=of)]
    assert blocked(cluster(two_zones(), [*never, *young, *more])).message.count(", because ") == 3


# No feasible node


def test_pods_that_fit_are_moved_and_the_rest_is_reported() -> None:
    found = blocked(cluster(two_zones(pods=1), pods({"a1": 6}, WEB)), moves=1)
    assert found.reason == Reason.NO_FEASIBLE_NODE
    assert "b holds the fewest pods, 1, and no node there takes a replacement" in found.message
    assert "b1 has room for 1 pods and has 1 already: make room there, or add nodes" in found.message


@pytest.mark.parametrize("first", ["fancy", "default-scheduler"])
def test_pods_whose_scheduler_is_not_known_are_no_obstacle_beside_others(first: str) -> None:
    of = {name: spec(constraint(), scheduler_name=name) for name in ("fancy", "default-scheduler")}
    there = [pod(f"{name != first}-{name}-{at}", "a1", each) for name, each in of.items() for at in range(2)]
    assert blocked(cluster(two_zones(pods=0), there)).reason is Reason.NO_FEASIBLE_NODE


def test_nodes_of_a_domain_with_the_same_reason_are_reported_together() -> None:
    nodes = [node("a1", "a"), *(node(f"b{number}", "b", pods=1) for number in range(4))]
    nodes.append(node("b9", "b", taints=(taint(),)))
    others = pods({f"b{number}": 1 for number in range(4)}, spec(), labels=Map(app="other"), prefix="other")
    done = pods({"b0": 1}, spec(), labels=Map(app="other"), prefix="done", phase="Succeeded")
    message = blocked(cluster(nodes, [*three_in_a(), *others, *done])).message
    assert "b0 has room for 1 pods and has 1 already, and so it is on 3 more; b9 has the taint dedicated" in message
    assert message.endswith("; the pods on b0, b1, b2 are 3 of ReplicaSet/web in default")


def test_rules_other_than_spread_that_keep_pods_off_nodes_are_reported() -> None:
    labels, other = Map(app="web", tier="front"), Map(app="other", tier="front")
    apart = PodAffinityTerm(HOSTNAME, LabelSelector(match_labels=Map(app="other")))
    of = spec(constraint(), constraint(HOSTNAME, selector=Map(tier="front")), pod_anti_affinity=(apart,))
    there = [*three_in_a(of, labels=labels), *pods({"b1": 4}, spec(), labels=other, prefix="other")]
    assert "(b1 the pod's anti-affinity keeps it" in blocked(cluster(two_zones(), there)).message


def test_moves_beyond_those_that_are_looked_for_at_once_are_planned_later() -> None:
    found = blocked(cluster(two_zones(pods=900), pods({"a1": 602}, WEB)), moves=300)
    assert found.message.startswith("it takes more than the 300 evictions that are planned")


@pytest.mark.parametrize(
    ("of_b", "of"),
    [
        ({"taints": (taint(),)}, spec(constraint(node_taints_policy="Honor"))),
        ({}, spec(constraint(), node_selector=Map({ZONE: "a"}))),
        ({}, spec(constraint(selector=Map(app="wbe")))),
    ],
    ids=["honored taints", "node affinity", "a selector that matches nothing"],
)
def test_a_group_without_another_eligible_domain_or_pods_is_not_violated(of_b: dict[str, Any], of: PodSpec) -> None:
    plan = plan_of(cluster(two_zones(**of_b), three_in_a(of)))
    assert (plan.moves, plan.blocked) == ((), ())


# The constraint itself


def test_unmet_min_domains_are_reported() -> None:
    found = blocked(cluster(two_zones(), pods({"a1": 2, "b1": 2}, spec(constraint(min_domains=3)))))
    assert found.reason == Reason.TOO_FEW_DOMAINS
    assert found.message == (
        f"minDomains is 3 and there are only 2 of {ZONE} (a, b), so the minimum counts as 0 and none may hold more "
        "than maxSkew, 1: add nodes in more domains, or lower minDomains"
    )


def test_two_conflicting_constraints_of_the_kubernetes_documentation_are_reported() -> None:
    nodes = [node("node1", "zoneA"), node("node2", "zoneA"), node("node3", "zoneB")]
    found = blocked(
        cluster(nodes, pods({"node1": 2, "node2": 1, "node3": 3}, spec(constraint(ZONE), constraint(HOSTNAME))))
    )
    assert (found.reason, found.topology_key) == (Reason.CONFLICTING_CONSTRAINTS, HOSTNAME)
    assert found.message == (
        f"a replacement for web-node3-0 of node3 would have to go to node2, which holds the fewest, and {ZONE} zoneA "
        "has 3 matching pods, where the minimum is 2: with the pod the skew would be 2, above maxSkew 1: the nodes "
        "can't satisfy both: add nodes, or relax one of the constraints"
    )


def test_a_selector_that_does_not_match_the_pods_own_labels_is_reported() -> None:
    others = pods({"a1": 3}, spec(), prefix="other", labels=Map(app="other"))
    own = pods({"a1": 1}, spec(constraint(selector=Map(app="other"))))
    found = blocked(cluster(two_zones(), [*others, *own]))
    assert found.reason == Reason.UNKNOWN_REPLACEMENT
    assert "the pods that it counts in a, such as other-a1-0, don't have the constraint themselves" in found.message
    assert "give them the same constraint, or narrow its labelSelector" in found.message


# Budgets


def budget(name: str = "web", **fields: Any) -> PodDisruptionBudget:
    given = {"current_healthy": 3, "desired_healthy": 3, "expected_pods": 3, **fields}
    return PodDisruptionBudget(**{"namespace": "default", "name": name, "selector": OF_WEB, **given})


def test_a_budget_that_holds_all_pods_is_reported() -> None:
    found = blocked(cluster(two_zones(), three_in_a(), poddisruptionbudgets=[budget()]))
    assert found.reason == Reason.HELD_BY_BUDGET
    assert found.message == REPLICAS + (
        "PodDisruptionBudget web allows no disruption: 3 of its 3 pods are healthy and 3 have to be, so it allows no "
        "eviction even if all of them are healthy: raise maxUnavailable, or lower minAvailable"
    )


@pytest.mark.parametrize(
    ("of_budget", "of_pods"),
    [
        (None, {}),
        ({"selector": LabelSelector(match_labels=Map(app="api"))}, {}),
        ({"selector": None}, {}),
        ({"namespace": "other"}, {}),
        (None, {"phase": "Pending", "ready": False}),
        (None, {"ready": False}),
    ],
)
def test_only_pods_that_a_budget_selects_are_evicted_if_one_is_required(of_budget: Any, of_pods: Any) -> None:
    """Also those that the API server frees because they don't run."""
    required, there = default_policy(victims=VictimRules(budget="Required")), three_in_a(**of_pods)
    others = [] if of_budget is None else [budget(**{"disruptions_allowed": 1, **of_budget})]
    found = blocked(cluster(two_zones(), there, poddisruptionbudgets=others), required)
    assert found.reason is Reason.NO_BUDGET
    assert (
        "no PodDisruptionBudget selects it, and the policy's victims.budget is Required; create one that does, or set "
        "victims.budget: Optional"
    ) in found.message
    with_one = cluster(two_zones(), three_in_a(), poddisruptionbudgets=[budget(disruptions_allowed=1)])
    assert len(plan_of(with_one, required).moves) == len(plan_of(cluster(two_zones(), three_in_a())).moves) == 1


# Motion, holds, policies


@pytest.mark.parametrize(
    ("moving", "words"),
    [
        ([pod("new", "", WEB)], "new, one of its 4 pods, has no node yet: it is left alone until it has one"),
        (
            [
                pod("web-0", "b1", WEB, deletion_timestamp=NOW, controller=owner("StatefulSet")),
                pod("web-1", "a1", WEB, controller=owner("StatefulSet")),
            ],
            "web-0 is being deleted, and StatefulSet web creates it again when it is gone: it is left alone until then",
        ),
    ],
)
def test_pods_in_motion_are_reported(moving: Sequence[Pod], words: str) -> None:
    found = blocked(cluster(two_zones(), [*three_in_a(), *moving]))
    assert found.reason == Reason.IN_MOTION
    assert found.message == words


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_pods_that_only_terminate_hold_nothing(kind: str) -> None:
    """A ReplicaSet replaces them at once. Those with the highest ordinals were taken away by a scale-down."""
    controller = OwnerReference("apps/v1", kind, "db", "uid-db")
    going = pod("db-9", "b1", WEB, deletion_timestamp=NOW, controller=controller)
    there = [pod(f"db-{at}", "a1", WEB, controller=controller) for at in range(3)]
    plan = plan_cluster(cluster(two_zones(), [*there, going]), [default_policy()], now=NOW)
    assert [move.wave for move in plan.moves] == [0]
    assert plan.blocked == ()


def test_surplus_pods_that_the_policy_does_not_select_are_reported() -> None:
    """The policy selects the pods of web, which have the constraint, but not the surplus pods that it counts."""
    shared = constraint(selector=Map(tier="front"))
    never = annotated("respread.dev/evict", "never")
    web = pod("web-a1-0", "a1", spec(shared), labels=Map(app="web", tier="front"), **never)
    others = pods({"a1": 3}, spec(shared), labels=Map(app="other", tier="front"), prefix="other")
    found = blocked(cluster(two_zones(), [web, *others]), default_policy(pod_selector=OF_WEB))
    assert found.reason == Reason.NOT_SELECTED
    assert "other-a1-0 and 2 more, because no policy selects it" in found.message
    assert "web-a1-0, because its annotation respread.dev/evict says 'never'" in found.message


def test_an_invalid_policy_evicts_nothing() -> None:
    wrong = msgspec.structs.replace(default_policy(), problems=(Problem("spec.quietPeriod", "is wrong"),))
    found = blocked(cluster(two_zones(), three_in_a()), wrong)
    assert found.reason == Reason.INVALID_POLICY
    assert "policy default is invalid and evicts nothing until it is fixed" in found.message
