"""Every filter gives a reason that tells a user what to do. tests/conformance checks the decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.cluster.objects import (
    ClaimReference,
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from respread.cluster.pod import (
    AWSElasticBlockStore,
    GCEPersistentDisk,
    HostPort,
    ISCSIVolume,
    MigratedVolume,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    RBDVolume,
    Toleration,
)
from respread.scheduling.configuration import Profile, SchedulerConfiguration
from respread.scheduling.filters.node_affinity import matches_node_affinity
from respread.scheduling.filters.node_resources_fit import shown
from respread.scheduling.filters.volume_restrictions import disks_conflict
from respread.scheduling.predictor import Predictor
from respread.scheduling.verdict import PLUGINS, Rejection
from respread.scheduling.view.cluster_view import ClusterView
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pod, spec, taint

WEB = LabelSelector(Map(app="web"))
AFFINITY = (PodAffinityTerm(HOSTNAME, WEB),)


def reasons(
    wanted: PodSpec, nodes: Iterable[Node], pods: Iterable[Pod] = (), *, profile: Profile | None = None, **others: Any
) -> dict[str, list[str]]:
    """Return, by node, the rejections of a new pod `web` by every filter, each as "plugin: message"."""
    snapshot = cluster(nodes, pods, **others)
    configuration = SchedulerConfiguration(profiles=Map({"default-scheduler": profile or Profile()}))
    prepared = Predictor(ClusterView(snapshot), configuration).prepare(pod("new", "", wanted))
    return {name: [str(each) for each in prepared.rejections(name)] for name in sorted(snapshot.nodes)}


def reason(wanted: PodSpec, on: Node, pods: Iterable[Pod] = (), **others: Any) -> list[str]:
    return reasons(wanted, [on], pods, **others)[on.name]


def test_the_reason_names_a_cordon_that_the_pod_does_not_tolerate() -> None:
    cordoned = node("n1", unschedulable=True)
    assert reason(spec(), cordoned) == ["NodeUnschedulable: is cordoned (spec.unschedulable)"]
    tolerant = spec(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert reason(tolerant, cordoned) == []


def test_the_reason_names_the_taint_that_is_not_tolerated() -> None:
    tainted = node("n1", taints=(taint("soft", "PreferNoSchedule"), taint("dedicated", "NoExecute", "gpu")))
    assert reason(spec(), tainted) == [
        "TaintToleration: has the taint dedicated=gpu:NoExecute, which the pod does not tolerate"
    ]
    assert reason(spec(tolerations=(Toleration("dedicated", "Equal", "gpu"),)), tainted) == []
    assert reason(spec(tolerations=(Toleration("dedicated", "Gt", "1"),)), tainted) != []


def test_the_reason_repeats_the_node_affinity_of_the_pod() -> None:
    wanted = spec(
        node_selector=Map(disk="ssd"),
        node_affinity=NodeSelector(
            (
                NodeSelectorTerm(
                    (NodeSelectorRequirement("cpu", "Gt", ("4",)), NodeSelectorRequirement("old", "DoesNotExist"))
                ),
                NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", ("n7",)),)),
            )
        ),
    )
    asked = "nodeSelector disk=ssd and node affinity cpu Gt (4) and !old, or metadata.name In (n7)"
    assert reason(wanted, node("n1", labels={"cpu": "4", "disk": "ssd"})) == [f"NodeAffinity: does not satisfy {asked}"]
    assert reason(wanted, node("n1", labels={"cpu": "5", "disk": "ssd"})) == []
    assert reason(wanted, node("n7", labels={"disk": "ssd"})) == []


@pytest.mark.parametrize(
    ("operator", "bound", "value", "matches"),
    [
        ("Gt", "4", "5", True),
        ("Gt", "4", "4", False),
        ("Lt", "4", "3", True),
        ("Lt", "4", "4", False),
        ("Gt", "4", "five", False),
        ("Gt", "four", "5", False),
        ("Gt", "0", str(2**63 - 1), True),
        ("Gt", "0", str(2**63), False),
        ("Lt", str(2**63 - 1), "0", True),
        ("Lt", str(2**63), "0", False),
        ("Gt", "-5", "3", False),  # it is no label value
    ],
)
def test_labels_are_compared_as_integers_of_64_bits(operator: Any, bound: str, value: str, *, matches: bool) -> None:
    terms = NodeSelectorTerm(), NodeSelectorTerm((NodeSelectorRequirement("cpus", operator, (bound,)),))
    on = node("n1", labels=Map(cpus=value))
    assert (reason(spec(node_affinity=NodeSelector(terms)), on) == []) is matches
    assert [matches_node_affinity(Map(), NodeSelector(terms), each) for each in (on, node("n2"))] == [matches, False]


@pytest.mark.parametrize(
    ("key", "operator", "matches"),
    [
        ("metadata.name", "In", True),
        ("metadata.name", "NotIn", False),
        ("metadata.uid", "In", False),
        ("metadata.uid", "NotIn", True),
    ],
)
def test_only_the_name_of_a_node_is_known_as_a_field(key: str, operator: Any, *, matches: bool) -> None:
    term = NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key, operator, ("n1",)),))
    assert (reason(spec(node_affinity=NodeSelector((term,))), node("n1")) == []) is matches
    added = Profile(added_affinity=NodeSelector((term,)))
    assert (reason(spec(), node("n1"), profile=added) == []) is matches
    assert matches_node_affinity(Map(), NodeSelector((term,)), node("n1")) is matches


def test_the_reason_names_affinity_added_by_the_configuration() -> None:
    added = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement("pool", "Exists"),)),))
    answers = reasons(spec(), [node("n1"), node("n2", labels={"pool": "a"})], profile=Profile(added_affinity=added))
    assert answers == {
        "n1": ["NodeAffinity: does not satisfy the addedAffinity of the scheduler's configuration"],
        "n2": [],
    }


def test_the_reason_names_all_insufficient_resources_with_need_and_free() -> None:
    small = Node(name="n1", allocatable=Map({"cpu": 4000, "memory": 4 << 30, "pods": 2}))
    there = [pod(f"p{number}", "n1", PodSpec(requests=Map(cpu=1250, memory=3 << 30))) for number in range(2)]
    wanted = PodSpec(requests=Map({"cpu": 2000, "memory": 1 << 20, "nvidia.com/gpu": 1, "a.com/b": 0, "pods": 3}))
    short = (
        "has room for 2 pods and has 2 already; needs cpu 2, has 1500m free of 4; needs memory 1Mi, has -2Gi free of "
        "4Gi; needs nvidia.com/gpu 1, has 0 free of 0"
    )
    assert reason(wanted, small, there) == [f"NodeResourcesFit: {short}"]
    assert [shown("memory", 3 << bits) for bits in (0, 10, 20, 30, 40)] == ["3", "3Ki", "3Mi", "3Gi", "3Ti"]


def test_a_pod_in_a_resize_counts_with_its_allocated_resources() -> None:
    small = Node(name="n1", allocatable=Map({"cpu": 1000, "pods": 9}))
    resized = pod("p", "n1", PodSpec(requests=Map(cpu=100)), held_requests=Map(cpu=950))
    assert reason(PodSpec(requests=Map(cpu=100)), small, [resized]) == [
        "NodeResourcesFit: needs cpu 100m, has 50m free of 1"
    ]


def test_only_extended_resources_can_be_ignored() -> None:
    wanted = PodSpec(requests=Map({"cpu": 100_000, "example.com/a": 1, "other.io/b": 1, "other.io/c": 1}))
    profile = Profile(
        ignored_resources=frozenset({"cpu", "other.io/b"}), ignored_resource_groups=frozenset({"example.com"})
    )
    assert reasons(wanted, [node("n1")], profile=profile) == {
        "n1": ["NodeResourcesFit: needs cpu 100, has 64 free of 64; needs other.io/c 1, has 0 free of 0"]
    }


@pytest.mark.parametrize(
    ("wanted", "held", "free"),
    [
        (HostPort("TCP", 80), HostPort("TCP", 80), False),
        (HostPort("TCP", 80), HostPort("UDP", 80), True),
        (HostPort("TCP", 80), HostPort("TCP", 80, "10.0.0.1"), False),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80), False),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.2"), True),
        (HostPort("TCP", 80, "::"), HostPort("TCP", 80, "10.0.0.1"), True),
    ],
)
def test_ports_conflict_by_address_and_protocol(wanted: HostPort, held: HostPort, free: bool) -> None:
    answer = reason(PodSpec(host_ports=(wanted,)), node("n1"), [pod("p", "n1", PodSpec(host_ports=(held,)))])
    expected = f"NodePorts: other pods of the node use {wanted.host_ip}:80/TCP"
    assert answer == ([] if free else [expected])


def claim(name: str, **fields: Any) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(namespace="default", name=name, **fields)


def bound(name: str, **fields: Any) -> PersistentVolumeClaim:
    return claim(name, volume_name=f"pv-{name}", bind_completed=True, phase="Bound", **fields)


MANUAL = StorageClass(
    name="manual", provisioner="kubernetes.io/no-provisioner", volume_binding_mode="WaitForFirstConsumer"
)
IN_ZONE_B = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement(ZONE, "In", ("b",)),)),))


def test_a_read_write_once_pod_claim_is_in_use_until_its_pod_is_deleted() -> None:
    of = PodSpec(shared_claims=("data",))
    answers = reasons(
        of,
        [node("n1"), node("n2")],
        [pod("old", "n1", of)],
        persistentvolumeclaims=[bound("data", access_modes=("ReadWriteOncePod",))],
        persistentvolumes=[PersistentVolume(name="pv-data")],
    )
    message = "another pod uses the claim default/data, which only one pod at a time may (ReadWriteOncePod)"
    assert answers == {name: [f"VolumeRestrictions: {message}"] for name in ("n1", "n2")}


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (GCEPersistentDisk("d"), GCEPersistentDisk("d", read_only=True), True),
        (GCEPersistentDisk("d", read_only=True), GCEPersistentDisk("d", read_only=True), False),
        (GCEPersistentDisk("d"), GCEPersistentDisk("e"), False),
        (AWSElasticBlockStore("v", read_only=True), AWSElasticBlockStore("v", read_only=True), True),
        (ISCSIVolume("iqn"), ISCSIVolume("iqn", read_only=True), True),
        (ISCSIVolume("iqn", read_only=True), ISCSIVolume("iqn", read_only=True), False),
        (RBDVolume(("m1", "m2"), "p", "i"), RBDVolume(("m2", "m3"), "p", "i"), True),
        (RBDVolume(("m1",), "p", "i"), RBDVolume(("m2",), "p", "i"), False),
        (RBDVolume(("m1",), "p", "i"), RBDVolume(("m1",), "q", "i"), False),
        (GCEPersistentDisk("x"), AWSElasticBlockStore("x"), False),
    ],
)
def test_some_disks_can_be_attached_only_once_per_node(one: Any, other: Any, conflict: bool) -> None:
    assert disks_conflict(one, other) is conflict
    assert disks_conflict(other, one) is conflict


def test_the_reason_names_the_pod_that_uses_the_disk() -> None:
    of = PodSpec(disks=(GCEPersistentDisk("d"),))
    answers = reasons(of, [node("n1"), node("n2")], [pod("old", "n1", of)])
    assert answers == {
        "n1": ["VolumeRestrictions: pod default/old on the node has a disk that the pod wants too"],
        "n2": [],
    }


def test_the_volume_limit_of_a_node_counts_each_volume_once() -> None:
    def using(*names: str) -> PodSpec:
        return PodSpec(shared_claims=names)

    names = ["a", "b", "c"]
    world: dict[str, Any] = {
        "persistentvolumeclaims": [bound(name) for name in names],
        "persistentvolumes": [
            PersistentVolume(name=f"pv-{name}", csi_driver="disks.io", csi_volume_handle=name) for name in names
        ],
        "csinodes": [CSINode(name="n1", volume_limits=Map({"disks.io": 2}))],
    }
    there = [pod("p1", "n1", using("a", "b")), pod("p2", "n1", using("b"))]
    assert reasons(using("a", "b"), [node("n1"), node("n2")], there, **world) == {"n1": [], "n2": []}
    assert reasons(using("b", "c"), [node("n1"), node("n2")], there, **world) == {
        "n1": ["NodeVolumeLimits: can attach 2 volumes of disks.io, has 2, and the pod needs 1 more"],
        "n2": [],
    }


@pytest.mark.parametrize("fields", [(), (NodeSelectorRequirement("metadata.name", "In", ("n1",)),)])
def test_a_bound_volume_is_accessible_only_from_nodes_whose_labels_its_affinity_selects(fields: Any) -> None:
    (term,) = IN_ZONE_B.node_selector_terms
    affinity = NodeSelector((msgspec.structs.replace(term, match_fields=fields),))
    answers = reasons(
        PodSpec(shared_claims=("data",)),
        [node("n1", "a"), node("n2", "b"), node("n3")],
        persistentvolumeclaims=[bound("data")],
        persistentvolumes=[PersistentVolume(name="pv-data", node_affinity=affinity)],
    )
    assert answers == {
        "n1": ["VolumeBinding: volume pv-data of claim data can't be reached (its node affinity)"],
        "n2": [],
        "n3": ["VolumeBinding: volume pv-data of claim data can't be reached (its node affinity)"],
    }


def test_a_volume_with_zone_labels_is_allowed_on_nodes_without_zones() -> None:
    answers = reasons(
        PodSpec(shared_claims=("data",)),
        [node("n1", "a"), node("n2", "b"), node("n3"), node("n4", "c")],
        persistentvolumeclaims=[bound("data")],
        persistentvolumes=[
            PersistentVolume(name="pv-data", labels=Map({ZONE: "b__c", "topology.kubernetes.io/region": "r__"}))
        ],
    )
    assert answers == {
        "n1": [f"VolumeZone: volume pv-data is reached only from {ZONE} b or c"],
        "n2": [],
        "n3": [],
        "n4": [],
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "the PersistentVolumeClaim data does not exist"),
        ([bound("data")], "claim data is bound to the volume pv-data, which does not exist"),
        ([claim("data", phase="Lost", volume_name="v")], "claim data is Lost: its volume v does not exist any more"),
        ([claim("data", terminating=True)], "claim data is being deleted"),
        (
            [claim("data", storage_class_name="now")],
            "claim data is not bound to a volume yet, and the scheduler is not the one to do it",
        ),
        (
            [claim("data", storage_class_name="in-b")],
            "the StorageClass of claim data makes no volumes here (allowedTopologies)",
        ),
        ([claim("data", storage_class_name="in-b", selected_node="n9")], "claim data gets its volume on node n9"),
        ([], "VolumeZone: the PersistentVolumeClaim data does not exist"),
        ([claim("data")], "VolumeZone: claim data has neither a volume nor a storage class"),
        ([claim("data", storage_class_name="x")], "VolumeZone: the StorageClass x of claim data does not exist"),
        ([claim("data", storage_class_name="now")], "VolumeZone: claim data is not bound to a volume yet"),
        ([bound("data")], "VolumeZone: the PersistentVolume pv-data of claim data does not exist"),
    ],
)
def test_the_reason_says_what_is_wrong_with_a_claim(given: list[PersistentVolumeClaim], message: str) -> None:
    in_b = NodeSelectorTerm((NodeSelectorRequirement(ZONE, "In", ("b",)),))
    answers = reason(
        PodSpec(shared_claims=("data",)),
        node("n1", "a"),
        persistentvolumeclaims=given,
        storageclasses=[
            StorageClass(name="now", provisioner="disks.io"),
            MANUAL,
            StorageClass(
                name="in-b",
                provisioner="disks.io",
                volume_binding_mode="WaitForFirstConsumer",
                allowed_topologies=(in_b,),
            ),
        ],
    )
    assert (message if message.startswith("VolumeZone") else f"VolumeBinding: {message}") in answers


@pytest.mark.parametrize("error", ["", "it can't be translated"])
def test_a_volume_is_reached_as_its_node_has_migrated_it(error: str) -> None:
    """From n1 and n2 as a disk of its own driver, from zone b, and from the other two as a CSI volume, from zone a."""
    in_a = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement(ZONE, "In", ("a",)),)),))
    disk = MigratedVolume("disks", "disks.csi.io", error=error)
    volume = PersistentVolume(name="pv-data", node_affinity=IN_ZONE_B, migrated=disk, migrated_node_affinity=in_a)
    there = [CSINode(name=name, migrated_plugins=frozenset({"disks"})) for name in ("n3", "n4", "gone")]
    others: dict[str, Any] = {"persistentvolumeclaims": [bound("data")], "persistentvolumes": [volume]}
    nodes = [node("n1", "a"), node("n2", "b"), node("n3", "a"), node("n4", "b")]
    answers = reasons(PodSpec(shared_claims=("data",)), nodes, csinodes=[*there, CSINode(name="n1")], **others)
    far = ["VolumeBinding: volume pv-data of claim data can't be reached (its node affinity)"]
    failed = [f"VolumeBinding: {error}"]
    assert answers == {"n1": far, "n2": [], "n3": failed if error else [], "n4": failed if error else far}


@pytest.mark.parametrize("volumes", [1, 2])
def test_each_claim_needs_a_volume_of_its_own(volumes: int) -> None:
    answers = reason(
        PodSpec(shared_claims=("one", "two")),
        node("n1", "a"),
        persistentvolumeclaims=[claim(name, storage_class_name="manual") for name in ("one", "two")],
        persistentvolumes=[
            PersistentVolume(name=f"pv-{number}", storage_class_name="manual", phase="Available")
            for number in range(volumes)
        ],
        storageclasses=[MANUAL],
    )
    missing = "VolumeBinding: there is no volume for claim two, and its storage class makes none"
    assert answers == ([] if volumes == 2 else [missing])


ITS = ClaimReference("default", "data", "uid-1")


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({}, True),
        ({"capacity_bytes": 9}, False),
        ({"access_modes": ("ReadWriteMany",)}, False),
        ({"labels": Map()}, False),
        ({"volume_mode": "Block"}, False),
        ({"volume_attributes_class_name": ""}, False),
        ({"storage_class_name": "other"}, False),
        ({"terminating": True}, False),
        ({"phase": "Released"}, False),
        ({"node_affinity": IN_ZONE_B}, False),
        ({"claim": ITS, "access_modes": (), "labels": Map(), "phase": "Released"}, True),
        ({"claim": ITS, "node_affinity": IN_ZONE_B}, False),
        ({"claim": ITS, "capacity_bytes": 9}, False),
        ({"claim": ClaimReference("default", "data")}, True),
        ({"claim": ClaimReference("default", "data", "uid-0")}, False),
        ({"claim": ClaimReference("default", "other", "uid-1")}, False),
        ({"claim": ClaimReference("other", "data", "uid-1")}, False),
    ],
)
def test_a_claim_is_bound_to_a_volume_that_is_reserved_for_it_or_free_and_suitable(
    fields: dict[str, Any], *, fits: bool
) -> None:
    volume: dict[str, Any] = {
        "storage_class_name": "manual",
        "capacity_bytes": 10,
        "access_modes": ("ReadWriteOnce", "ReadWriteMany"),
        "labels": Map(disk="fast"),
        "volume_attributes_class_name": "gold",
        "phase": "Available",
    }
    wanted = claim(
        "data",
        uid="uid-1",
        storage_class_name="manual",
        requested_bytes=10,
        access_modes=("ReadWriteOnce",),
        selector=LabelSelector(Map(disk="fast")),
        volume_attributes_class_name="gold",
    )
    answers = reason(
        PodSpec(shared_claims=("data",)),
        node("n1", "a"),
        persistentvolumeclaims=[wanted],
        persistentvolumes=[PersistentVolume(name="pv", **volume | fields)],
        storageclasses=[MANUAL],
    )
    missing = "VolumeBinding: there is no volume for claim data, and its storage class makes none"
    assert answers == ([] if fits else [missing])


def test_the_reason_contains_domain_count_minimum_and_skew() -> None:
    of = spec(constraint(ZONE))
    nodes = [node("n1", "a"), node("n2", "b"), node("n3", "c"), node("n4")]
    there = [pod(f"p{number}", on, of) for number, on in enumerate(["n1", "n1", "n2"])]
    skewed = (
        "PodTopologySpread: " + ZONE + " {} matching pods, where the minimum is {}: with the pod the skew would be {}"
    )
    assert reasons(of, nodes, there) == {
        "n1": [skewed.format("a has 2", 0, "3, above maxSkew 1")],
        "n2": [skewed.format("b has 1", 0, "2, above maxSkew 1")],
        "n3": [],
        "n4": [f"PodTopologySpread: has no label {ZONE}, which the pod's constraint asks for"],
    }


def test_the_reason_explains_a_minimum_of_zero_by_too_few_domains() -> None:
    of = spec(constraint(ZONE, min_domains=3))
    there = [pod("p1", "n1", of), pod("p2", "n2", of)]
    (answer,) = reason(of, node("n1", "a"), there)
    assert f"{ZONE} a has 1 matching pods, where the minimum is 0 for want of 3 domains: " in answer


def test_anti_affinity_applies_in_both_directions() -> None:
    lonely, both = (PodSpec(pod_anti_affinity=(*AFFINITY, *more)) for more in ((), (PodAffinityTerm(ZONE, WEB),)))
    for of, there, why in (
        (lonely, PodSpec(), f"the pod's anti-affinity keeps it from {HOSTNAME} n1, which has pods that match app=web"),
        (PodSpec(), lonely, f"the anti-affinity of pods in {HOSTNAME} n1 keeps the pod from it"),
        (PodSpec(), both, f"the anti-affinity of pods in {HOSTNAME} n1 keeps the pod from it"),
    ):
        found = reasons(of, [node("n1", "a"), node("n2", "b")], [pod("p", "n1", there)])
        assert found == {"n1": [f"InterPodAffinity: {why}"], "n2": []}
    found = reasons(lonely, [node("n1", "a"), node("n2", "a")], [pod("p", "n1", PodSpec())])
    assert not found["n2"], "another node of its zone"


@pytest.mark.parametrize("namespace", ["default", "elsewhere"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pod_affinity": AFFINITY},
        {"pod_anti_affinity": AFFINITY},
        {"host_ports": (HostPort("TCP", 80),)},
        {"disks": (GCEPersistentDisk("disk"),)},
    ],
)
def test_other_pods_affect_a_pod_by_their_room_alone_unless_either_has_terms_ports_or_volumes(
    fields: dict[str, Any], namespace: str
) -> None:
    existing = pod("there", "n1", spec(pod_anti_affinity=AFFINITY), namespace=namespace)
    prepared = Predictor(ClusterView(cluster([node("n1")], [existing]))).prepare(
        pod("new", "", spec(constraint(), **fields))
    )
    assert prepared.needs_only_room is (not fields and namespace == "elsewhere")


def test_the_first_pod_may_violate_its_own_affinity_and_later_pods_may_not() -> None:
    together = PodSpec(pod_affinity=(PodAffinityTerm(ZONE, WEB), *AFFINITY))
    nodes = [node("n1", "a"), node("n2", "b"), node("n3"), node("n4", "a")]
    lacking = f"InterPodAffinity: the pod's affinity needs the label {ZONE}, which the node has not"
    assert reasons(together, nodes) == {"n1": [], "n2": [], "n3": [lacking], "n4": []}
    missing = "InterPodAffinity: the pod's affinity needs a pod that matches app=web in {}, and none there matches all "
    assert reasons(together, nodes, [pod("p", "n1", PodSpec())]) == {
        "n1": [],
        "n2": [missing.format(f"{ZONE} b") + "its terms"],
        "n3": [lacking],
        "n4": [missing.format(f"{HOSTNAME} n4") + "its terms"],
    }


def test_the_namespace_selector_bug_can_be_switched_on() -> None:
    not_b = LabelSelector(match_expressions=(LabelSelectorRequirement("team", "NotIn", ("b",)),))
    of = PodSpec(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, WEB, namespace_selector=not_b),))
    teams = [Namespace(name=f"team-{each}", labels=Map(team=each)) for each in "ab"]
    snapshot = cluster([node("n1")], [pod("p", "n1", PodSpec(), namespace="team-b")], namespaces=teams)
    new = pod("new", "", of, namespace="team-a")
    as_meant = Predictor(ClusterView(snapshot)).prepare(new)
    as_in_1_36_3 = Predictor(ClusterView(snapshot), SchedulerConfiguration(keeps_namespace_selectors=True)).prepare(new)
    assert (as_meant.feasible_nodes(), as_in_1_36_3.feasible_nodes()) == (["n1"], [])


def test_every_filter_that_rejects_is_listed_in_the_schedulers_order() -> None:
    of = spec(
        constraint(ZONE, max_skew=1, node_affinity_policy="Ignore"),
        node_selector=Map(disk="ssd"),
        requests=Map(cpu=100_000),
        host_ports=(HostPort("TCP", 80),),
        pod_anti_affinity=AFFINITY,
    )
    full = node("n1", "a", unschedulable=True, taints=(taint(),))
    snapshot = cluster([full, node("n2", "b")], [pod("p", "n1", of), pod("q", "n1", of)])
    prepared = Predictor(ClusterView(snapshot)).prepare(pod("new", "", of))
    plugins = [each.plugin for each in prepared.rejections("n1")]
    assert plugins == [
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "PodTopologySpread",
        "InterPodAffinity",
    ]
    assert prepared.first_rejection("n1") == Rejection("NodeUnschedulable", "is cordoned (spec.unschedulable)")


def test_a_disabled_plugin_rejects_nothing() -> None:
    off = Profile(plugins=frozenset(PLUGINS) - {"TaintToleration", "InterPodAffinity"})
    view = ClusterView(cluster([node("n1", taints=(taint(),))], []))
    predictor = Predictor(view, SchedulerConfiguration(profiles=Map({"default-scheduler": off})))
    prepared = predictor.prepare(pod("new", "", spec(pod_affinity=AFFINITY)))
    assert (prepared.rejections("n1"), prepared.is_first_of_its_set, prepared.needs_only_room) == ((), False, True)


def test_a_pod_with_a_node_name_fits_only_that_node() -> None:
    prepared = Predictor(ClusterView(cluster([node("n1"), node("n2")], []))).prepare(pod("new", "n2", spec()))
    assert prepared.feasible_nodes() == ["n2"]
    assert str(prepared.first_rejection("n1")) == "NodeName: the pod names node n2"
