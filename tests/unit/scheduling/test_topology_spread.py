"""The pods and nodes that count for a constraint, the constraints of a pod, and its likely domains."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.cluster.decode.decoder import Decoder
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import DecodeError, Service, Workload
from respread.cluster.pod import Pod, PodSpec, Toleration, TopologySpreadConstraint
from respread.cluster.selectors import NOTHING, Selector
from respread.cluster.state import ClusterState
from respread.scheduling.configuration import Profile, SchedulerConfiguration
from respread.scheduling.filters.topology_spread import (
    constraints_in_force,
    counts_as_pod,
    effective_selector,
    required_keys,
)
from respread.scheduling.predictor import Predictor
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.group import domains_of, eligibility_of
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, spec, taint

# The effective selector


MERGED = LabelSelector(Map(app="web"), (LabelSelectorRequirement("version", "In", ("v1",)),))
WEB_V1 = effective_selector(constraint(match_label_keys=("version",)), Map(app="web", version="v1"))


@pytest.mark.parametrize(
    ("selector", "keys", "labels", "text", "same"),
    [
        (Map(app="web"), ("version", "track"), Map(app="web", version="v1"), "app=web,version=v1", WEB_V1),
        (MERGED, ("version",), Map(app="web", version="v1"), "app=web,version=v1", WEB_V1),
        (None, ("app",), Map(app="web"), "<nothing>", NOTHING),
        ({}, ("app",), Map(), "<everything>", Selector((), (), ())),
        ({}, ("app",), Map(app="web"), "app=web", None),
    ],
)
def test_match_label_keys_add_what_the_pod_has_once_to_a_selector_that_is_not_absent(
    selector: Any, keys: tuple[str, ...], labels: Map[str, str], text: str, same: Selector | None
) -> None:
    found = effective_selector(constraint(selector=selector, match_label_keys=keys), labels)
    assert (str(found), found) == (text, found if same is None else same)


# Pods and nodes that count


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"phase": "Pending"}, True),
        ({"phase": "Unknown"}, True),
        ({"ready": False}, True),
        ({"phase": "Succeeded"}, False),
        ({"phase": "Failed"}, False),
        ({"deletion_timestamp": NOW}, False),
    ],
)
def test_pods_count_until_they_terminate_or_finish(fields: dict[str, Any], counts: bool) -> None:
    assert counts_as_pod(pod("p", "n1", PodSpec(), **fields)) is counts
    assert not counts_as_pod(pod("p", "", PodSpec(), **fields))


def test_a_node_needs_the_keys_of_all_constraints_of_the_same_kind() -> None:
    of = [constraint(ZONE), constraint(HOSTNAME), constraint(ZONE, 2), constraint("rack", when="ScheduleAnyway")]
    assert required_keys(of, "DoNotSchedule") == (HOSTNAME, ZONE)
    assert required_keys(of, "ScheduleAnyway") == ("rack",)


def test_a_node_counts_by_its_keys_and_the_two_policies() -> None:
    of = spec(node_selector=Map(disk="ssd"), tolerations=(Toleration("a", "Exists"),))
    fields: dict[str, Any] = {"labels": {"disk": "ssd"}, "unschedulable": True}
    nodes = [node("plain", "a"), node("wanted", "a", **fields), node("empty zone", "", **fields)]
    for effect in ("NoSchedule", "NoExecute", "PreferNoSchedule"):
        nodes.append(node(effect, "a", **fields, taints=(taint("a"), taint("b", effect))))

    def counting(*constraints: TopologySpreadConstraint) -> set[str]:
        return {*domains_of(eligibility_of(of, constraints[0], constraints), ZONE, nodes).of_node}

    assert counting(constraint(node_affinity_policy="Ignore")) == {each.name for each in nodes}
    assert counting(constraint()) == {each.name for each in nodes} - {"plain"}
    assert counting(constraint(node_taints_policy="Honor")) == {"wanted", "empty zone", "PreferNoSchedule"}
    assert not counting(constraint(), constraint("rack"))
    honor = constraint(node_taints_policy="Honor")
    for_a_time = spec(node_selector=of.node_selector, tolerations=(Toleration("a", "Exists", toleration_seconds=60),))
    assert eligibility_of(of, honor, [honor]) == eligibility_of(for_a_time, honor, [honor])


# The effective constraints


def in_force(new: Pod, profile: Profile | None = None, **objects: Any) -> tuple[list[str], list[str]]:
    """Return the effective hard and soft constraints as "key/maxSkew selector"."""
    found = constraints_in_force(new, profile or Profile(), cluster([], [], **objects))
    hard, soft = (
        [f"{each.topology_key}/{each.max_skew} {each.selector}" for each in constraints]
        for constraints in (found.hard, found.soft)
    )
    return hard, soft


SERVICES = [
    Service(namespace="default", name="web", selector=Map(app="web")),
    Service(namespace="default", name="all", selector=Map(tier="front")),
    Service(namespace="default", name="other", selector=Map(app="api")),
    Service(namespace="default", name="manual"),
    Service(namespace="elsewhere", name="far", selector=Map(track="a")),
]


def workload(**labels: str) -> Workload:
    return Workload(namespace="default", name="web", selector=LabelSelector(Map(labels)))


WEB_SET = workload(hash="1")


def system_defaults(selector: str) -> tuple[list[str], list[str]]:
    return [], [f"{HOSTNAME}/3 {selector}", f"{ZONE}/5 {selector}"]


@pytest.mark.parametrize(
    ("owner", "selector"),
    [
        (OwnerReference("apps/v1", "ReplicaSet", "web", "u"), "app=web,hash=1,tier=front"),
        (OwnerReference("apps/v1", "StatefulSet", "web", "u"), "app=web,set=1,tier=front"),
        (OwnerReference("v1", "ReplicationController", "web", "u"), "app=web,rc=1,tier=back"),
        (OwnerReference("batch/v1", "Job", "web", "u"), "app=web,tier=front"),
        (OwnerReference("extensions/v1beta1", "ReplicaSet", "web", "u"), "app=web,tier=front"),
        (OwnerReference("apps/v1", "ReplicaSet", "gone", "u"), "app=web,tier=front"),
        (None, "app=web,tier=front"),
    ],
)
def test_default_constraints_count_pods_selected_by_services_and_the_owner(
    owner: OwnerReference | None, selector: str
) -> None:
    new = pod("new", "", PodSpec(), labels=Map(app="web", tier="front", track="a"), controller=owner)
    found = in_force(
        new,
        services=SERVICES,
        replicasets=[WEB_SET, Workload(namespace="default", name="gone")],
        statefulsets=[workload(set="1")],
        replicationcontrollers=[workload(rc="1", tier="back")],
    )
    assert found == system_defaults(selector)


def test_a_pod_without_service_and_owner_or_with_a_constraint_has_no_default_constraints() -> None:
    assert in_force(pod("new", "", PodSpec(), controller=None)) == ([], [])
    new = pod("new", "", spec(constraint(ZONE)))
    assert in_force(new, replicasets=[WEB_SET]) == ([f"{ZONE}/1 app=web"], [])


def test_an_empty_selector_matches_the_pod_and_counts_none() -> None:
    of = spec(constraint(ZONE, selector={}))
    there = [pod(f"p{number}", "n1", of) for number in range(3)]
    prepared = Predictor(ClusterView(cluster([node("n1", "a"), node("n2", "b")], there))).prepare(pod("new", "", of))
    (hard,) = prepared.hard_constraints
    assert (hard.constraint.self_match, hard.domains.all_counts(), hard.minimum) == (True, {"a": 0, "b": 0}, 0)
    assert prepared.feasible_nodes() == ["n1", "n2"]


# The domains of a new pod


def possible_and_likely(prepared: PreparedPod, key: str) -> tuple[set[str], set[str]]:
    assert prepared.unknown is None
    feasible = prepared.admitted()
    return {*prepared.domains(feasible, key)}, {*prepared.domains(prepared.best_nodes(feasible), key)}


def test_possible_domains_have_feasible_nodes_and_likely_ones_the_best_score() -> None:
    of = spec(constraint(ZONE, when="ScheduleAnyway"), constraint("rack", node_affinity_policy="Ignore"))
    nodes = [
        node("n1", "a", labels={"rack": "r1"}),
        node("n2", "b", labels={"rack": "r2"}),
        node("n3", "c", labels={"rack": "r1"}),
        node("n4", "d", labels={"rack": "r3"}, unschedulable=True),
        node("n5", labels={"rack": "r4"}),
    ]
    there = [pod("p1", "n1", of), pod("p2", "n2", of), pod("p3", "n2", of), pod("p4", "n4", of), pod("p5", "n5", of)]
    prepared = Predictor(ClusterView(cluster(nodes, there))).prepare(pod("new", "", of))
    assert possible_and_likely(prepared, "rack") == ({"r1", "r4"}, {"r1"})
    assert possible_and_likely(prepared, ZONE) == ({"a", "c"}, {"c"})


@pytest.mark.parametrize(
    ("of", "domains"),
    [
        (PodSpec(), {"a", "b"}),
        (spec(constraint(ZONE)), {"b"}),
        (spec(constraint(ZONE, when="ScheduleAnyway"), constraint("rack", when="ScheduleAnyway")), {"a", "b"}),
        (spec(constraint(ZONE, when="ScheduleAnyway"), requests=Map(cpu=100_000)), set()),
    ],
    ids=["with unknown soft ones", "without soft constraints", "without a key of one", "without room"],
)
def test_all_possible_domains_are_likely(of: PodSpec, domains: set[str]) -> None:
    view = ClusterView(cluster([node("n1", "a"), node("n2", "b")], [pod("p", "n1", of)]))
    assert possible_and_likely(Predictor(view).prepare(pod("new", "", of)), ZONE) == (domains, domains)


def test_scores_follow_the_documented_formula() -> None:
    """The weight is ln(domains + 2), plus maxSkew - 1; the hostname counts each node's own pods."""
    of = spec(constraint(ZONE, 3, when="ScheduleAnyway"), constraint(HOSTNAME, when="ScheduleAnyway"))
    nodes = [node("n1", "a"), node("n2", "a"), node("n3", "b"), node("n4")]
    there = [pod(f"p{number}", on, of) for number, on in enumerate(["n1", "n1", "n2"])]
    view = ClusterView(cluster(nodes, there))
    prepared = Predictor(view, SchedulerConfiguration()).prepare(pod("new", "", of))
    scores = prepared.scores(prepared.admitted())
    assert scores is not None
    raw = {view.table.names[slot]: score for slot, score in zip(scores.slots, scores.raw, strict=True)}
    # zone: ln 4 = 1.386, hostname: ln 5 = 1.609
    assert raw == {"n1": round(3 * 1.386 + 2 + 2 * 1.609), "n2": round(3 * 1.386 + 2 + 1.609), "n3": 2}
    assert prepared.names(scores.ignored) == ["n4"]
    points = {view.table.names[slot]: score for slot, score in zip(scores.slots, scores.normalized, strict=True)}
    assert points == {"n1": 100 * 2 // 9, "n2": 100 * 3 // 9, "n3": 100}


# Malformed input


def test_a_malformed_pod_is_rejected_with_its_field_and_the_others_are_used() -> None:
    decoder, state = Decoder(), ClusterState()
    state.replace("nodes", [node("n1", "a"), node("n2", "b")])
    near = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
    keyless = {"matchExpressions": [{"key": "", "operator": "Exists"}]}
    of_nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [near]}}
    of_zone = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": keyless}
    changes: dict[str, dict[str, Any]] = {
        "good": {},
        "bad-quantity": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]},
        "bad-operator": {"affinity": {"nodeAffinity": of_nodes}},
        "bad-key": {"topologySpreadConstraints": [of_zone]},
    }
    refused = []
    for name, change in changes.items():
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}], **change},
            "status": {"phase": "Running"},
        }
        try:
            decoded = decoder.decode_object("pods", document)
        except DecodeError as error:
            refused.append(str(error))
        else:
            assert isinstance(decoded, Pod)
            state.apply("pods", [(decoded.key, decoded)])
    assert len(refused) == 3
    assert refused[0].startswith("pods default/bad-quantity: spec.containers[0].resources.requests[cpu]: 'lots'")
    assert "pods default/bad-operator: spec.affinity.nodeAffinity" in refused[1]
    assert "pods default/bad-key: spec.topologySpreadConstraints[0].labelSelector" in refused[2]
    prepared = Predictor(ClusterView(state.snapshot)).prepare(pod("new", "", spec(constraint(ZONE))))
    assert prepared.feasible_nodes() == ["n2"]
