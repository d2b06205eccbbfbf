"""The audit names what makes a constraint ineffective or unsatisfiable, and a patch that cures it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.objects import Node, PersistentVolume, PersistentVolumeClaim, Service, StorageClass, Workload
from respread.cluster.pod import (
    HostPort,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)
from respread.cluster.state import ClusterState
from respread.controller.scheduler_model import SchedulerModel
from respread.planning.audit.auditor import Auditor, WorkloadFinding
from respread.planning.audit.finding import AuditRule, Finding, state_of
from respread.planning.audit.rules import judge
from respread.planning.audit.subject import KnownNodes, subjects_of
from respread.scheduling.configuration import Profile, SchedulerConfiguration
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.carried import DefaultConstraints
from respread.spread.group import Template
from respread.spread.index import SpreadIndex
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pod, pods, spec, taint

CORDON: dict[str, Any] = {"unschedulable": True, "taints": (taint("node.kubernetes.io/unschedulable"),)}
IN_A = Map({ZONE: "a"})
EACH = {"a1": 1, "b1": 1, "c1": 1}
EVEN = {"a1": 2, "b1": 2, "c1": 2}


def zones(**of_c: Any) -> list[Node]:
    return [node("a1", "a"), node("b1", "b"), node("c1", "c", **of_c)]


def affinity(*values: str, key: str = ZONE, operator: Any = "In") -> NodeSelector:
    wanted = NodeSelectorRequirement(key=key, operator=operator, values=values)
    return NodeSelector((NodeSelectorTerm(match_expressions=(wanted,)),))


class Case(NamedTuple):
    """A workload of pods with the label app=web, and what the audit says about its first constraint."""

    of: PodSpec
    placed: Mapping[str, int] = EVEN
    waiting: int = 0
    nodes: Sequence[Node] = ()
    when: str = "Now"
    words: str = ""
    patch: tuple[str, Any] | None = None
    """The path below the constraint, and the value, of the last operation; None for a removed constraint."""
    rule: AuditRule | None = None


SOFT: dict[str, Any] = {"when": "ScheduleAnyway"}
RACKS = spec(constraint("rack"))
NEAR = (PodAffinityTerm(ZONE, LabelSelector(match_labels=Map(app="web"))),)
KEYS = (("rack", "slot"), ("pool",), ("beta.kubernetes.io/os",))
RACK, GPU, OLD = (node("a1", "a", labels=dict.fromkeys(keys, "x")) for keys in KEYS)
TAINTED = node("b1", "b", taints=(taint(),))
UNEVEN: dict[str, Any] = {
    "placed": {"a1": 2, "b1": 1, "b2": 1, "b3": 1},
    "waiting": 4,
    "nodes": [node("a1", "a"), *(node(f"b{number}", "b") for number in (1, 2, 3))],
}
RACKS_OF = {"a1": "r1", "b1": "r1", **{name: name for name in ("a2", "b2", "b3", "b4", "b5", "b6")}}
IN_RACKS = [node(name, name[0], labels={"rack": rack}) for name, rack in RACKS_OF.items()]
TERMS_OF_OTHERS: Mapping[str, dict[str, Any]] = {
    "to others": {"label_selector": LabelSelector(match_labels=Map(app="other"))},
    "for nodes": {"topology_key": HOSTNAME},
    "to pods of one revision": {"match_label_keys": ("pod-template-hash",)},
    "to pods of other revisions": {"mismatch_label_keys": ("pod-template-hash",)},
    "to pods of a namespace": {"namespaces": ("shop",)},
    "to pods of namespaces": {"namespace_selector": LabelSelector()},
}
CASES_BY_RULE: Mapping[AuditRule | None, Mapping[str, Case]] = {
    None: {
        "an even workload": Case(spec(constraint())),
        "one replica of a common template": Case(spec(constraint()), {"a1": 1}, nodes=[node("a1", "a")]),
        "a soft constraint with a large maxSkew, which is scored all the same": Case(
            spec(constraint(max_skew=12, **SOFT))
        ),
        "as many domains as minDomains": Case(spec(constraint(min_domains=3))),
        "few pods that wait for more domains, as minDomains is meant": Case(
            spec(constraint(HOSTNAME, min_domains=5)), EACH
        ),
        "an empty node pool that an autoscaler fills": Case(
            spec(constraint(), node_selector=Map(pool="gpu"), pod_affinity=NEAR), {}, waiting=3
        ),
        "a cordoned node of a zone with others": Case(spec(constraint()), nodes=[*zones(), node("c2", "c", **CORDON)]),
        "fewer pods than there may be in the other zones": Case(spec(constraint()), {"a1": 1}, nodes=zones(**CORDON)),
        "a cordoned zone of pods that tolerate it": Case(
            spec(constraint(), tolerations=(Toleration(operator="Exists"),)), nodes=zones(**CORDON)
        ),
        "a cordoned zone that does not count": Case(
            spec(constraint(node_taints_policy="Honor")), {"a1": 3, "b1": 3}, nodes=zones(**CORDON)
        ),
        "matchLabelKeys without a label of each pod that has it": Case(
            spec(constraint(match_label_keys=("statefulset.kubernetes.io/pod-name", "app")))
        ),
        **{
            f"anti-affinity {name}": Case(
                spec(constraint(), pod_anti_affinity=(msgspec.structs.replace(NEAR[0], **fields),))
            )
            for name, fields in TERMS_OF_OTHERS.items()
        },
        "anti-affinity of pods that may go to nodes without a zone": Case(
            spec(constraint(**SOFT), pod_anti_affinity=NEAR), {"a1": 1, "b1": 1}, nodes=[*zones(), node("d1")]
        ),
        "anti-affinity beside two soft constraints": Case(
            spec(constraint(**SOFT), constraint(HOSTNAME, **SOFT), pod_anti_affinity=NEAR), {"a1": 1, "b1": 1}
        ),
        "affinity of pods for whose only zone another has to come": Case(
            spec(constraint(min_domains=2), pod_affinity=NEAR), {"a1": 1}, waiting=1, nodes=[node("a1", "a", **CORDON)]
        ),
        "affinity of pods that are in several zones": Case(spec(constraint(), pod_affinity=NEAR)),
        "affinity of pods that are in two zones": Case(spec(constraint(), pod_affinity=NEAR), {"a1": 3, "b1": 3}),
        **{
            f"a soft constraint beside {name}": Case(spec(constraint(**SOFT), *others))
            for name, others in {
                "a hard one with a larger maxSkew": [constraint(max_skew=2)],
                "a hard one with minDomains": [constraint(min_domains=2)],
                "a hard one for nodes": [constraint(HOSTNAME)],
                "two hard and another soft one": [constraint(), constraint(HOSTNAME), constraint(HOSTNAME, **SOFT)],
            }.items()
        },
        **{
            f"zones of different size, the constraint for which {name}": Case(
                spec(constraint(HOSTNAME), other), **UNEVEN
            )
            for name, other in (("is soft", constraint(**SOFT)), ("counts others", constraint(selector={"app": "x"})))
        },
        "racks that several zones share": Case(
            spec(constraint("rack"), constraint()), **{**UNEVEN, "nodes": IN_RACKS, "waiting": 15}
        ),
        "nodes of zones of which there are too few": Case(spec(constraint(HOSTNAME), constraint(min_domains=4))),
        "a DaemonSet, whose pods have their node": Case(spec(constraint(HOSTNAME), pinned_to_node=True)),
        "a DaemonSet with a key that no node has": Case(spec(constraint("rack"), pinned_to_node=True)),
    },
    AuditRule.UNKNOWN_TOPOLOGY_KEY: {
        "a key that no node has": Case(RACKS, {}, waiting=6, words="no node has the label rack"),
        "a key of old": Case(
            spec(constraint("failure-domain.beta.kubernetes.io/zone")),
            nodes=[OLD, node("b1", "b")],
            patch=("topologyKey", ZONE),
        ),
        "a mistyped key of a soft constraint": Case(
            spec(constraint(f"{ZONE}s", **SOFT)), words="scores no node by it", patch=("topologyKey", ZONE)
        ),
        "a mistyped key of nodes in one zone": Case(
            spec(constraint(f"{ZONE}s")),
            nodes=zones()[:1],
            words="label the nodes with topology.kubernetes.io/zones, or",
        ),
    },
    AuditRule.MIN_DOMAINS_IGNORED: {
        "minDomains of a soft constraint": Case(
            spec(constraint(min_domains=2, **SOFT)), words="and the API server refuses", patch=("minDomains", None)
        )
    },
    AuditRule.NO_ELIGIBLE_NODE: {
        **{
            f"no node for the pods has the {'key' if len(constraints) == 1 else 'keys'}": Case(
                spec(*constraints, node_selector=Map(pool="gpu")),
                nodes=[node("a1", labels={"pool": "gpu"}), node("b1", "b")],
                words=f"none of the nodes that take its pods has {lacking}; label these nodes with {lacking}",
            )
            for constraints, lacking in (
                ((constraint(),), ZONE),
                ((constraint(), constraint(HOSTNAME)), f"all of {HOSTNAME}, {ZONE}"),
            )
        },
        "the key of another constraint that no node has": Case(
            spec(constraint(), constraint("rack")), words="no node has rack, the key of another constraint"
        ),
        "a soft constraint beside one whose key no node has": Case(
            spec(constraint(**SOFT), constraint("rack", **SOFT))
        ),
    },
    AuditRule.SELECTOR_MATCHES_NOTHING: {
        "no selector": Case(
            spec(constraint(selector=None)),
            words="has no labelSelector",
            patch=("labelSelector", {"matchLabels": {"app": "web"}}),
        ),
        "an empty selector": Case(spec(constraint(selector={})), words="has an empty labelSelector"),
        "a soft constraint without a selector": Case(spec(constraint(selector=None, **SOFT))),
        "a selector of nobody": Case(
            spec(constraint(selector={"app": "wbe"})),
            words="app=wbe does not match the pods that have it, so it counts no",
        ),
    },
    AuditRule.SELECTOR_MISSES_OWN_PODS: {
        "a selector of others": Case(spec(constraint(selector={"app": "other"})), words="so it counts only other pods")
    },
    AuditRule.KEY_PER_POD: {
        "matchLabelKeys with a label of each pod": Case(
            spec(constraint(match_label_keys=("apps.kubernetes.io/pod-index",))), patch=("matchLabelKeys", None)
        ),
        "matchLabelKeys with a label of each pod and others": Case(
            spec(constraint(match_label_keys=("apps.kubernetes.io/pod-index", "app"))),
            patch=("matchLabelKeys", ["app"]),
        ),
    },
    AuditRule.ONE_DOMAIN: {
        "a nodeSelector for one zone": Case(
            spec(constraint(), node_selector=IN_A), {"a1": 12}, words="nodeSelector only allows a"
        ),
        "affinity for one zone": Case(
            spec(constraint(), node_affinity=affinity("a")), {"a1": 2}, words="affinity allow nodes"
        ),
        "a cluster in one zone": Case(spec(constraint()), {"a1": 4}, nodes=[node("a1", "a"), node("a2", "a")]),
        "a pool of nodes in one zone": Case(
            spec(constraint(), node_selector=Map(pool="x")),
            {"a1": 4},
            nodes=[GPU, *zones()[1:]],
            words="or affinity allow",
        ),
        "one zone without taints": Case(
            spec(constraint(node_taints_policy="Honor")),
            {"a1": 4},
            nodes=[*zones()[:1], TAINTED],
            words="tolerations allow",
        ),
        "a key that only one node has": Case(
            spec(constraint("rack")),
            {"a1": 6},
            nodes=[RACK, *zones(**CORDON)[1:]],
            words="1 more node takes the pods, without the label rack; label these nodes with rack, or remove it",
        ),
        "the key of another constraint that only one node has": Case(
            spec(constraint(**SOFT), constraint("rack", **SOFT), constraint("slot", **SOFT)),
            {"a1": 6},
            nodes=[RACK, node("b1", "b")],
            words="1 more node takes the pods, without the label rack; label these nodes with rack, or remove the",
        ),
    },
    AuditRule.DUPLICATE: {
        "anti-affinity that does what the constraint would": Case(
            spec(constraint(), pod_anti_affinity=NEAR), EACH, words="so it has nothing to do; remove it"
        ),
        "anti-affinity that leaves too few domains": Case(
            spec(constraint(), pod_anti_affinity=NEAR), EACH, waiting=3, words="for 6 pods; remove the anti-affinity"
        ),
        "a soft constraint beside anti-affinity": Case(
            spec(constraint(**SOFT), pod_anti_affinity=NEAR), {"a1": 1, "b1": 1}
        ),
        "a soft constraint that a hard one makes needless": Case(
            spec(constraint(**SOFT), constraint()), words="the same constraint as DoNotSchedule"
        ),
    },
    AuditRule.CONTRADICTION: {
        "affinity that keeps all pods in one zone": Case(
            spec(constraint(), pod_affinity=NEAR),
            {"a1": 1},
            waiting=5,
            nodes=zones()[:2],
            words="and the others stay empty, so 5 pods of 6 can't",
        ),
        "affinity that keeps all pods on one node": Case(
            spec(constraint(), pod_affinity=(PodAffinityTerm(HOSTNAME, NEAR[0].label_selector),)), {"a1": 1}, waiting=5
        ),
        "zones of different size with constraints for zones and nodes": Case(
            spec(constraint(HOSTNAME), constraint()),
            **UNEVEN,
            words="9 pods can't be placed so that both topology.kubernetes.io/zone (maxSkew 1) and "
            "kubernetes.io/hostname (maxSkew 1) hold: there are 2 domains of topology.kubernetes.io/zone with 1 to 3 "
            "of kubernetes.io/hostname each; raise maxSkew of kubernetes.io/hostname to 3, or set its",
            patch=("maxSkew", 3),
        ),
        "zones of different size with as few pods as a maxSkew of 2 for nodes allows": Case(
            spec(constraint(HOSTNAME), constraint()), **{**UNEVEN, "waiting": 2}, patch=("maxSkew", 2)
        ),
        "zones of equal size with minDomains for nodes": Case(
            spec(constraint(), constraint(HOSTNAME, max_skew=2, min_domains=5)),
            {"a1": 4, "b1": 4},
            waiting=1,
            nodes=[node(f"{zone}{at}", zone) for zone in "ab" for at in (1, 2)],
            words="with 2 of kubernetes.io/hostname each",
        ),
        "zones of different size with minDomains for nodes": Case(
            spec(constraint(), constraint(HOSTNAME, max_skew=2, min_domains=5)), **{**UNEVEN, "waiting": 1}
        ),
    },
    AuditRule.SKEW_UNREACHABLE: {
        "as large a maxSkew as there are pods": Case(
            spec(constraint(max_skew=2), pod_affinity=NEAR), {"a1": 2}, patch=("maxSkew", 1)
        )
    },
    AuditRule.TOO_FEW_DOMAINS: {
        "minDomains above the number of zones": Case(
            spec(constraint(min_domains=4)),
            EACH,
            waiting=3,
            words="minDomains is 4 and there are only 3 domains (a, b, c), so the minimum counts as 0, each domain may "
            "have 1 pod, and 3 pods of 6 can't be placed",
            patch=("minDomains", 3),
        ),
        "minDomains in a zone alone": Case(
            spec(constraint(min_domains=2), node_selector=IN_A),
            {"a1": 1},
            waiting=2,
            words="there is only 1 domain (a), so the minimum counts as 0, each domain may have 1 pod, and 2 pods of 3 "
            "can't be placed; lower minDomains to 1, or add nodes in more domains",
            patch=("minDomains", None),
        ),
        "minDomains above the number of zones, one of which is cordoned": Case(
            spec(constraint(min_domains=4)),
            when="NextRollout",
            nodes=zones(**CORDON),
            words="so the minimum counts as 0, each other domain may have 1 pod, and 4 pods of 6 can't be placed again "
            "at the next rollout; lower minDomains to 2, or add nodes in more domains, and set nodeTaintsPolicy: Honor",
            patch=("minDomains", 2),
        ),
        "pods that were placed when there were more zones": Case(
            spec(constraint(min_domains=4)), when="NextRollout", words="at the next rollout"
        ),
        "pods that may go to one of the zones and wait for something else": Case(
            spec(constraint(min_domains=4)), {"a1": 1, "b1": 1}, waiting=4, when="NextRollout"
        ),
    },
    AuditRule.UNAVAILABLE_DOMAINS: {
        "cordoned zones with waiting pods": Case(
            spec(constraint()),
            {"a1": 2, "b1": 2, "c1": 1, "d1": 2},
            waiting=4,
            nodes=[*zones(**CORDON), node("c2", "c", taints=(taint(),)), node("d1", "d", **CORDON)],
            words="c, d count but can't take the pods (c1 is cordoned), so the minimum can't rise, each other domain "
            "may have 2 pods, and 4 pods of 11 can't be placed",
            patch=("nodeTaintsPolicy", "Honor"),
        ),
        "a cordoned zone before a rollout": Case(
            spec(constraint(min_domains=2)),
            nodes=zones(**CORDON),
            when="NextRollout",
            words="Honor, or make them take pods",
        ),
        "a node of the control plane": Case(
            spec(constraint(HOSTNAME)),
            {"a1": 1, "b1": 1},
            nodes=zones(taints=(taint("node-role.kubernetes.io/control-plane"), taint(effect="PreferNoSchedule"))),
            when="NextScaleUp",
            words="no room for more than 2 pods",
            patch=("nodeTaintsPolicy", "Honor"),
        ),
        **{
            f"{which} that the constraint ignores": Case(
                spec(constraint(node_affinity_policy="Ignore"), **{which: in_a}),
                {"a1": 1},
                waiting=2,
                words="each other domain may have 1 pod, and 2 pods of 3 can't be placed; set nodeAffinityPolicy",
                patch=("nodeAffinityPolicy", "Honor"),
            )
            for which, in_a in (("node_selector", IN_A), ("node_affinity", affinity("a")))
        },
    },
}
CASES = {name: case._replace(rule=rule) for rule, cases in CASES_BY_RULE.items() for name, case in cases.items()}

KEEPS_PENDING = {AuditRule.CONTRADICTION, AuditRule.TOO_FEW_DOMAINS, AuditRule.UNAVAILABLE_DOMAINS}
"""The rules about which pods can't be placed, beside those about keys if the constraint is a hard one."""
OF_KEYS = {AuditRule.UNKNOWN_TOPOLOGY_KEY, AuditRule.NO_ELIGIBLE_NODE}
LABELS = Map({"app": "web", "apps.kubernetes.io/pod-index": "0"})


def pods_of(case: Case) -> list[Pod]:
    others = pods({"a1": 1}, spec(), prefix="other", labels=Map(app="other"))
    waiting = [pod(f"web-{number}", "", case.of, labels=LABELS) for number in range(case.waiting)]
    return [*others, *pods(case.placed, case.of, labels=LABELS), *waiting]


def audited(nodes: Sequence[Node], placed: Sequence[Pod], of: PodSpec, at: int = 0) -> WorkloadFinding | None:
    snapshot = cluster(nodes, placed)
    spread = spread_of(snapshot)
    findings = Auditor().update(snapshot, spread)
    wanted = of.topology_spread_constraints[at]
    (key,) = (
        key
        for key in spread.groups
        if (key.topology_key, key.when_unsatisfiable) == (wanted.topology_key, wanted.when_unsatisfiable)
    )
    found = findings.get(key, ())
    return found[0] if found else None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_constraint_that_cannot_work_is_found_with_its_cause(case: Case) -> None:
    found = audited(case.nodes or zones(), pods_of(case), case.of)
    assert (None if found is None else found.finding.rule) == case.rule
    if found is not None:
        assert [each.name for each in found.workloads] == ["web"]
        is_hard = case.of.topology_spread_constraints[0].when_unsatisfiable == "DoNotSchedule"
        keeps_pending = case.rule in KEEPS_PENDING or (is_hard and case.rule in OF_KEYS)
        assert found.finding.state == ("Unsatisfiable" if keeps_pending else "Ineffective")
        when = "NextRollout" if case.rule in OF_KEYS and is_hard and not case.waiting else case.when
        assert found.finding.when == when
        assert case.words in f"{found.finding.message}; {found.finding.cure}"


def test_the_first_domain_that_takes_no_pods_says_what_cures_it() -> None:
    of, pool = spec(constraint(node_affinity_policy="Ignore"), node_selector=Map(pool="x")), {"pool": "x"}
    nodes = [*(node(f"{zone}1", zone, labels=pool) for zone in "ab"), node("c1", "c")]
    found = found_now([*nodes, node("d1", "d", labels=pool, **CORDON)], pods({"a1": 2, "b1": 2}, of))
    assert found[ZONE].cure == "set nodeAffinityPolicy: Honor"


@pytest.mark.parametrize(
    "of",
    [spec(constraint(), pod_affinity=NEAR), spec(constraint(min_domains=4)), spec(constraint(HOSTNAME), constraint())],
)
@pytest.mark.parametrize("labels", [Map(app="web", of="others"), Map(app="web")])
def test_other_pods_that_a_constraint_counts_may_be_anywhere(of: PodSpec, labels: Labels) -> None:
    nodes = [*zones(), node("c2", "c"), node("c3", "c")]
    own = pods({"a1": 2}, of)
    assert audited(nodes, [*own, *pods({"a1": 7}, spec(), labels=labels, prefix="other")], of) is None
    assert audited(nodes, [*own, *pods({"a1": 7}, of, labels=labels, prefix="other")], of) is not None
    without = pods({"a1": 1}, spec(), labels=labels, prefix="other", controller=OwnerReference("v1", "Job", "job", "1"))
    api = OwnerReference("apps/v1", "ReplicaSet", "api", "2")
    alike = pods({"a1": 1}, RACKS, labels=Map(app="web", of="api"), prefix="api", controller=api)
    found = audited(nodes, [*pods({"a1": 1}, RACKS), *alike, *without], RACKS)
    assert found is not None
    assert [each.name for each in found.workloads] == ["api", "web"]


def room_found(
    placed: Mapping[str, int], *, room: Mapping[str, int], waiting: int = 0, foresees: bool = True, **fields: Any
) -> list[Finding]:
    """Return what the audit finds in zones a, b and c of one node each, with room for so many pods."""
    of = spec(constraint(**fields))
    nodes = [node(f"{zone}1", zone, pods=room.get(zone, 110)) for zone in ("a", "b", "c")]
    there = [*pods(placed, of), *(pod(f"web-{number}", "", of) for number in range(waiting))]
    snapshot = cluster(nodes, [*there, pod("gated", "", spec(has_scheduling_gates=True))])
    auditor, spread = Auditor() if foresees else SchedulerModel().auditor, spread_of(snapshot)
    predictor = Predictor(ClusterView())
    found = auditor.update(snapshot, spread, predictor)
    again = auditor.update(snapshot, spread, predictor)
    assert all(again[key] is each for key, each in found.items())
    return [each.finding for group in found.values() for each in group]


def test_a_full_domain_that_counts_keeps_pods_pending_although_others_have_room() -> None:
    uneven = {"a1": 2, "b1": 2, "c1": 1}
    (now,) = room_found(uneven, room={"c": 1}, waiting=1)
    assert (now.rule, now.state, now.when) == (AuditRule.FULL_DOMAINS, "Unsatisfiable", "Now")
    assert now.message == (
        "only c may have another pod, and no node there takes one (c1 has room for 1 pods and has 1 already); all "
        "others have 2 pods or more, which is the most until then, so 1 pod of 6 can't be placed"
    )
    assert (now.cure, now.patch) == ("make room in c, or add nodes there; nodes in other domains don't help", ())
    (later,) = room_found(uneven, room={"c": 1})
    assert (later.when, "a scale-up leaves one Pending" in later.message) == ("NextScaleUp", True)
    assert room_found(uneven, room={"c": 1}, foresees=False) == []
    assert len(room_found(uneven, room={"c": 1}, waiting=1, foresees=False)) == 1
    nominated = pod("next", "", spec(priority=9), labels=Map(app="next"), nominated_node_name="c1")
    nodes, there = [*zones()[:2], node("c1", "c", pods=2)], pods(uneven, spec(constraint()))
    assert "no node there takes one (c1 keeps" in found_now(nodes, [*there, nominated])[ZONE].message
    (first,) = room_found({"a1": 1, "b1": 1}, room={"c": 0}, waiting=2, min_domains=4)
    assert first.rule is AuditRule.TOO_FEW_DOMAINS, "what else is found decides"


@pytest.mark.parametrize(
    ("placed", "fields"),
    [
        ({"a1": 2, "b1": 2, "c1": 1}, {"room": {"c": 2}}),
        ({"a1": 2, "b1": 1, "c1": 1}, {"room": {"c": 1}}),
        ({"a1": 2, "b1": 2, "c1": 1}, {"room": {"a": 2, "b": 2, "c": 1}}),
        ({"a1": 2, "b1": 2, "c1": 2}, {"room": {"c": 2}}),
        ({"a1": 2, "b1": 2, "c1": 1}, {"room": {"c": 1}, "when": "ScheduleAnyway"}),
    ],
    ids=["it has room", "another may have one", "no node has room", "all may have one", "it is soft"],
)
def test_a_full_domain_is_no_fault_of_a_constraint_that_allows_another_or_if_nothing_has_room(
    placed: Mapping[str, int], fields: Any
) -> None:
    assert room_found(placed, waiting=1, **fields) == []


def found_now(nodes: Sequence[Node], there: Sequence[Pod], **others: Any) -> dict[str, Finding]:
    """Return what the audit finds by topologyKey, with what it knows of room."""
    snapshot = cluster(nodes, there, **others)
    found = Auditor().update(snapshot, spread_of(snapshot), Predictor(ClusterView()))
    return {key.topology_key: each.finding for key, (each,) in found.items()}


def test_constraints_that_allow_no_node_together_are_found_although_each_alone_does() -> None:
    of = spec(constraint(), constraint("type"))
    nodes = [node(name, name[0], labels={"type": name[1:]}) for name in ("aspot", "bspot", "cspot", "cod")]
    stuck = pods({"cspot": 1}, of, labels=Map({"app": "web", ZONE: "c"}))  # As the API server labels placed pods.
    assert found_now(nodes, pods({"aspot": 1, "cod": 1}, of)) == {}
    assert found_now(nodes, [*pods({"aspot": 1}, of), pod("new", "", of)]) == {}, "it may go to cod"
    full = [*pods(EACH, spec(constraint(min_domains=4))), pod("other", "a1", spec())]
    assert found_now(zones(), full) == {}, "no domain may have another one, wherever there is room"
    found = found_now(nodes, [*stuck, *(pod(f"new-{number}", "", of) for number in range(5))])
    assert {(key, each.rule, each.when) for key, each in found.items()} == {
        (key, AuditRule.CONTRADICTION, "Now") for key in (ZONE, "type")
    }
    assert found[ZONE].message == (
        "it allows another pod only in a, b, and of the nodes there the pods' constraint for type allows none, so 5 "
        "pods of 6 can't be placed"
    )
    assert found[ZONE].patch[-1].value == "ScheduleAnyway"
    assert found["type"].patch[-1].path.startswith("/topologySpreadConstraints/1/")
    assert found_now(nodes, stuck) == {}
    by_type = found_now([*nodes[:3], node("cod", "c", pods=0, labels={"type": "od"})], [*stuck, pod("new", "", of)])
    assert {key: each.rule for key, each in by_type.items()} == {"type": AuditRule.FULL_DOMAINS}, "no zone would help"


def test_a_domain_that_takes_no_pod_for_another_reason_than_room_has_another_cure() -> None:
    volume, terms = PersistentVolume(name="disk", node_affinity=affinity("a")), affinity("a").node_selector_terms
    zonal = StorageClass(
        name="zonal", provisioner="disks.io", volume_binding_mode="WaitForFirstConsumer", allowed_topologies=terms
    )
    here = {"volume_name": "disk", "bind_completed": True}
    with_volumes = spec(constraint(), stateful_claims=("data",))
    owner = OwnerReference("apps/v1", "StatefulSet", "web", "uid-web")
    there = [pod(f"web-{number}", on, with_volumes, controller=owner) for number, on in enumerate(("a1", *[""] * 9))]
    anywhere = {"volume_name": "other", "bind_completed": True}
    for second in (here, {"storage_class_name": "zonal"}, anywhere):
        claims = [
            PersistentVolumeClaim(namespace="default", name=f"data-web-{number}", **fields)
            for number, fields in enumerate((here, *[anywhere] * 8, second))
        ]
        disks = [volume, PersistentVolume(name="other")]
        volumes = {"persistentvolumes": disks, "persistentvolumeclaims": claims, "storageclasses": [zonal]}
        assert found_now(zones(), there[:1], **volumes) == {}, "where the volume of one more pod would be is not known"
        by_key = found_now(zones(), there, **volumes)
        assert set(by_key) == (set() if second is anywhere else {ZONE})
        for found in by_key.values():
            assert (found.rule, found.when, found.patch[-1].value) == (AuditRule.FULL_DOMAINS, "Now", "ScheduleAnyway")
            assert found.cure.startswith("use volumes that nodes in b, c can reach, or ")
    other = PodAffinityTerm(ZONE, LabelSelector(match_labels=Map(app="other")))
    for key, patch in ((HOSTNAME, ["topologyKey", "whenUnsatisfiable", "minDomains"]), (ZONE, ["topologyKey", "0"])):
        near_other = spec(constraint(min_domains=2), constraint(key, **SOFT), pod_affinity=(other,))
        there = [*pods({"a1": 1}, spec(), prefix="other", labels=Map(app="other")), *pods({"a1": 1}, near_other)]
        found = found_now(zones(), [*there, pod("late", "", near_other)])[ZONE]
        assert found.cure.startswith("change the pods' affinity to other pods, which keeps them from b, c")
        assert [each.path.rpartition("/")[2] for each in found.patch] == patch
    with_port = spec(constraint(), host_ports=(HostPort("TCP", 80),))
    taken = pods({"c1": 1, "c2": 1}, spec(host_ports=(HostPort("TCP", 80),)), prefix="other", labels=Map(app="other"))
    waiting = [pod("late", "", with_port), pod("other-late", "", spec(constraint()))]
    there = [*pods({"a1": 1, "b1": 1}, with_port), *taken, *waiting]
    found = found_now([*zones(), node("a2", "a"), node("c2", "c")], there)[ZONE]
    assert found.cure.startswith("add nodes in c, because each takes only one pod with the port")
    assert found.patch == ()
    assert "no node there takes one (c1 other pods" in found.message


def applied(spec_of_pod: dict[str, Any], finding: Finding) -> dict[str, Any]:
    """Return the spec after the patch of a finding."""
    done: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(spec_of_pod, enc_hook=dict))
    for each in finding.patch:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in each.path.split("/")[1:]]
        at: Any = done
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at[part]
        place: Any = int(last) if isinstance(at, list) else last
        if each.op == "test":
            assert at[place] == each.value
        elif each.op == "remove":
            del at[place]
        else:
            at[place] = each.value
    return done


WITHOUT_A_PATCH = {
    "the key of another constraint that only one node has",
    "a cluster in one zone",
    "a soft constraint beside one whose key no node has",
    "the key of another constraint that no node has",
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.rule is not None])
def test_the_patch_cures_it_unless_no_change_of_the_constraint_does(name: str) -> None:
    case = CASES[name]
    nodes = case.nodes or zones()
    found = audited(nodes, pods_of(case), case.of)
    assert found is not None
    assert found.finding.cure
    if name in WITHOUT_A_PATCH:
        assert found.finding.patch == ()
        return
    written = {
        "nodeSelector": dict(case.of.node_selector),
        "topologySpreadConstraints": case.of.topology_spread_constraints,
        "affinity": {"podAntiAffinity": {REQUIRED: case.of.pod_anti_affinity}},
    }
    assert [each.op == "test" for each in found.finding.patch] == [True] + [False] * (len(found.finding.patch) - 1)
    after = applied(written, found.finding)
    if case.rule is AuditRule.UNAVAILABLE_DOMAINS:
        assert len(found.finding.patch) == 2, "minDomains may stay"
    if case.patch is not None:
        field, value = case.patch
        assert after["topologySpreadConstraints"][0].get(field) == value
    constraints = tuple(
        msgspec.convert(each, TopologySpreadConstraint, dec_hook=lambda _, value: Map(value))
        for each in after["topologySpreadConstraints"]
    )
    left = len(after["affinity"]["podAntiAffinity"][REQUIRED])
    of = msgspec.structs.replace(
        case.of,
        topology_spread_constraints=constraints,
        node_selector=Map(after["nodeSelector"]),
        pod_anti_affinity=case.of.pod_anti_affinity[:left],
    )
    replicas = sum(case.placed.values()) + case.waiting
    template = Template(LABELS, of)
    found_after = [
        judge(each) for each in subjects_of("default", template, KnownNodes(cluster(nodes, ()).nodes), replicas)
    ]
    assert all(each is None or each.rule is not case.rule for each in found_after)


def rules(of: PodSpec, nodes: KnownNodes | None = None, replicas: int | None = None) -> list[AuditRule | None]:
    """Return the rules by which something is found in the manifest of a workload with the label app=web."""
    found = [judge(each) for each in subjects_of("shop", Template(Map(app="web"), of), nodes, replicas)]
    return [None if each is None else each.rule for each in found]


def test_a_manifest_is_judged_without_a_cluster() -> None:
    in_a: list[dict[str, Any]] = [{"node_selector": IN_A}, {"node_affinity": affinity("a")}]
    of = spec(constraint(selector={"app": "wbe"}), constraint(HOSTNAME, max_skew=5), constraint("rack"), **in_a[0])
    assert rules(of, replicas=4) == [AuditRule.SELECTOR_MISSES_OWN_PODS, AuditRule.SKEW_UNREACHABLE, None]
    assert [rules(spec(constraint(), **fields)) for fields in in_a] == [[AuditRule.ONE_DOMAIN]] * 2
    uneven = KnownNodes(cluster(UNEVEN["nodes"], ()).nodes)
    for number, rule in ((2000, AuditRule.CONTRADICTION), (2001, None)):  # It would take long.
        assert rules(spec(constraint(), constraint(HOSTNAME)), uneven, number) == [rule, rule]
    near = [rules(spec(constraint(), **{which: NEAR}), replicas=4) for which in ("pod_anti_affinity", "pod_affinity")]
    assert near == [[AuditRule.DUPLICATE], [AuditRule.CONTRADICTION]]


@pytest.mark.parametrize("nodes", [None, KnownNodes(Map()), KnownNodes(cluster(zones(), ()).nodes)])
@pytest.mark.parametrize(
    ("of", "rule"),
    [
        (spec(constraint(), pod_affinity=NEAR), None),
        (spec(constraint(), pod_anti_affinity=NEAR), AuditRule.DUPLICATE),
        (spec(constraint(**SOFT), node_affinity=affinity("a", "b")), None),
        (spec(constraint(), node_affinity=affinity("a", operator="NotIn")), None),
        (spec(constraint(), node_affinity=affinity("gpu", key="pool")), None),
        (spec(constraint(min_domains=2), node_affinity=affinity("a")), None),
    ],
)
def test_without_replicas_only_what_holds_for_any_number_is_found(
    of: PodSpec, rule: AuditRule | None, nodes: KnownNodes | None
) -> None:
    assert rules(of, nodes) == [rule]


def test_only_what_has_changed_is_audited_again() -> None:
    auditor, index, of = Auditor(), SpreadIndex(), spec(constraint(max_skew=12))
    state = ClusterState(cluster(zones(), [*pods(EVEN, of), *pods(EVEN, of, namespace="shop")]))
    before = auditor.update(state.snapshot, index.update(state.snapshot))
    state.apply("pods", [((new := pod("more", "a1", of)).key, new)])
    state.apply("nodes", [((old := zones(ready=False)[2]).key, old)])
    after = auditor.update(state.snapshot, index.update(state.snapshot))
    assert {key.namespace: after[key] is found for key, found in before.items()} == {"default": False, "shop": True}
    state.apply("nodes", [((last := node("c1", "b")).key, last), ((b := node("b1", "b")).key, b)])
    moved = auditor.update(state.snapshot, index.update(state.snapshot))
    assert all(moved[key] is not found for key, found in after.items())


def test_a_finding_follows_nodes_and_waiting_pods_though_its_group_stays() -> None:
    auditor, index, of, c1 = Auditor(), SpreadIndex(), spec(constraint()), zones()[2]
    state = ClusterState(cluster(zones(), [*pods(EVEN, of), pod("other", "", spec(), labels=Map(app="other"))]))
    cordoned, more, unavailable = zones(**CORDON)[2], node("c2", "c"), AuditRule.UNAVAILABLE_DOMAINS
    for change in ((c1, c1, None), (c1, cordoned, unavailable), (more, more, None), (more, None, unavailable)):
        state.apply("nodes", [(change[0].key, change[1])])
        findings = auditor.update(state.snapshot, index.update(state.snapshot))
        assert [each.finding.rule for found in findings.values() for each in found] == [change[2]] * bool(change[2])
    for number in (1, 2):
        state.apply("pods", [((new := pod(f"new-{number}", "", of)).key, new)])
        ((found,),) = auditor.update(state.snapshot, index.update(state.snapshot)).values()
        assert f"and {number + 4} pods of {number + 6} can't be placed" in found.finding.message


@pytest.mark.parametrize(("key", "rule"), [(ZONE, None), ("rack", AuditRule.UNKNOWN_TOPOLOGY_KEY)])
def test_a_default_constraint_is_only_found_if_it_keeps_pods_pending(key: str, rule: AuditRule | None) -> None:
    default = TopologySpreadConstraint(max_skew=9, topology_key=key, when_unsatisfiable="DoNotSchedule")
    profile = Profile(default_constraints=(default,))
    defaults = DefaultConstraints(SchedulerConfiguration(profiles=Map({"default-scheduler": profile})))
    service = Service(namespace="default", name="web", selector=Map(app="web"))
    owner = Workload(namespace="default", name="web", uid="uid-web")
    snapshot = cluster(zones(), pods(EVEN, spec()), services=[service], replicasets=[owner])
    findings = Auditor().update(snapshot, SpreadIndex(defaults).update(snapshot))
    found = [each.finding for group in findings.values() for each in group]
    assert [each.rule for each in found] == ([] if rule is None else [rule])
    assert all(not each.patch and "default constraint" in each.cure for each in found)


@pytest.mark.parametrize(
    ("state", "when", "violated", "expected"),
    [
        ("Unsatisfiable", "Now", True, "Unsatisfiable"),
        ("Unsatisfiable", "NextRollout", True, "BlockedViolation"),
        ("Unsatisfiable", "NextRollout", False, "Unsatisfiable"),
        ("Ineffective", "Now", True, "Ineffective"),
    ],
)
def test_a_constraint_that_keeps_pods_pending_now_is_unsatisfiable_even_if_violated(
    state: Any, when: Any, violated: bool, expected: str
) -> None:
    finding = Finding(rule=AuditRule.DUPLICATE, state=state, when=when, message="", cure="")
    assert state_of(violated=violated, blocked=True, findings=[finding]) == expected
    assert state_of(violated=False, blocked=None, findings=[]) == "Holds"
    assert state_of(violated=True, blocked=False, findings=[]) == "RestorableViolation"


def test_pods_can_only_be_selected_by_labels_that_stay() -> None:
    passing = {"pod-template-hash": "123", "version": "7", ZONE: "a"}
    of = spec(constraint(selector={"app": "x"}, match_label_keys=("track",)))
    (subject,) = subjects_of("shop", Template(Map(passing, tier="back", track="canary"), of))
    found = judge(subject)
    assert found is not None
    assert found.message == "its labelSelector app=x does not match the pods that have it"
    assert found.patch[-1].value == {"matchLabels": {"tier": "back"}}
    (subject,) = subjects_of("shop", Template(Map(passing), of))
    without_any = judge(subject)
    assert without_any is not None
    assert (without_any.cure, without_any.patch) == ("give the pods labels, and select them", ())
