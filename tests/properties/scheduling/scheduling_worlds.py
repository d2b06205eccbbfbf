"""Small random clusters in which every filter matters, for the properties of views and filters."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.objects import (
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Service,
    Taint,
    Workload,
)
from respread.cluster.pod import (
    AWSElasticBlockStore,
    GCEPersistentDisk,
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
from respread.cluster.state import ClusterSnapshot, ClusterState

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
RACK = "rack"
DRIVER = "csi.example.com"
DELETED = datetime(2026, 1, 1, tzinfo=UTC)
NODES = [f"n{number}" for number in range(6)]
NAMESPACES = ["shop", "blog"]

keys = st.sampled_from([ZONE, HOSTNAME, RACK])
apps = st.sampled_from(["web", "api", "db"])
label_maps = st.builds(
    lambda app, track: Map({"app": app, **({"track": track} if track else {})}), apps, st.sampled_from(["", "a", "b"])
)
label_selectors = st.one_of(
    st.none(),
    st.just(LabelSelector()),
    st.builds(lambda app: LabelSelector(Map(app=app)), apps),
    st.builds(
        lambda values: LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", tuple(values)),)),
        st.lists(apps, min_size=1, max_size=2),
    ),
    st.sampled_from(
        [
            LabelSelector(match_expressions=(LabelSelectorRequirement("track", "Exists"),)),
            LabelSelector(match_expressions=(LabelSelectorRequirement("track", "NotIn", ("a",)),)),
        ]
    ),
)
policies = st.sampled_from(["Honor", "Ignore"])
constraints = st.builds(
    TopologySpreadConstraint,
    max_skew=st.integers(1, 2),
    topology_key=keys,
    when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    label_selector=label_selectors,
    min_domains=st.sampled_from([None, None, 2, 4]),
    node_affinity_policy=policies,
    node_taints_policy=policies,
    match_label_keys=st.sampled_from([(), (), ("track",)]),
)
affinity_terms = st.builds(
    PodAffinityTerm,
    topology_key=keys,
    label_selector=label_selectors,
    namespaces=st.sampled_from([(), (), ("blog",)]),
    namespace_selector=st.sampled_from([None, None, LabelSelector(), LabelSelector(Map(team="a"))]),
)
taints = st.builds(Taint, key=st.sampled_from(["gpu", "maint"]), effect=st.sampled_from(["NoSchedule", "NoExecute"]))
requirements = st.one_of(
    st.builds(
        NodeSelectorRequirement,
        key=st.sampled_from([ZONE, RACK, "size", "nope"]),
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(st.sampled_from(["a", "b", "r1", "4", ""]), min_size=1, max_size=2).map(tuple),
    ),
    st.builds(
        NodeSelectorRequirement,
        key=st.sampled_from([ZONE, RACK, "size"]),
        operator=st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        NodeSelectorRequirement,
        key=st.just("size"),
        operator=st.sampled_from(["Gt", "Lt"]),
        values=st.sampled_from([("2",), ("4",), ("no",), ("2", "4")]),
    ),
)
node_selectors = st.builds(
    NodeSelector,
    st.lists(
        st.builds(
            NodeSelectorTerm,
            st.lists(requirements, max_size=2).map(tuple),
            st.sampled_from(
                [
                    (),
                    (),
                    (NodeSelectorRequirement("metadata.name", "In", ("n1",)),),
                    (NodeSelectorRequirement("metadata.name", "NotIn", ("n1",)),),
                ]
            ),
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
)
rarely_terms = st.one_of(st.just(()), st.just(()), st.lists(affinity_terms, min_size=1, max_size=2).map(tuple))
specs = st.builds(
    PodSpec,
    requests=st.sampled_from([Map(), Map(cpu=1000), Map(cpu=500, memory=1 << 30), Map({"example.com/gpu": 1})]),
    host_ports=st.sampled_from(
        [(), (), (HostPort("TCP", 80),), (HostPort("TCP", 80, "10.0.0.1"), HostPort("UDP", 80))]
    ),
    node_selector=st.sampled_from([Map(), Map(), Map({ZONE: "a"})]),
    node_affinity=st.one_of(st.none(), st.none(), node_selectors),
    pod_affinity=rarely_terms,
    pod_anti_affinity=rarely_terms,
    tolerations=st.sampled_from([(), (), (Toleration("gpu", "Exists"),), (Toleration(operator="Exists"),)]),
    topology_spread_constraints=st.lists(constraints, max_size=2).map(tuple),
    priority=st.sampled_from([0, 10]),
    shared_claims=st.sampled_from([(), (), (), ("data",), ("solo",)]),
    disks=st.sampled_from([(), (), (GCEPersistentDisk("d"),), (AWSElasticBlockStore("v", read_only=True),)]),
)


def _node(
    name: str, zone: str, rack: str, size: str, hostname: bool, taint: Taint | None, cordoned: bool, cpu: int
) -> Node:
    labels = {ZONE: zone, RACK: rack, "size": size, HOSTNAME: name if hostname else ""}
    return Node(
        name=name,
        labels=Map({key: value for key, value in labels.items() if value}),
        taints=() if taint is None else (taint,),
        unschedulable=cordoned,
        allocatable=Map({"cpu": cpu, "memory": 2 << 30, "pods": 4, "example.com/gpu": cpu // 2000}),
    )


def nodes_named(name: str) -> st.SearchStrategy[Node]:
    """Draw a node with a name."""
    return st.builds(
        _node,
        st.just(name),
        st.sampled_from(["a", "b", "c", ""]),
        st.sampled_from(["r1", "r2", ""]),
        st.sampled_from(["2", "4", "big", ""]),
        st.sampled_from([True, True, True, False]),
        st.one_of(st.none(), st.none(), taints),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([1000, 2000, 8000]),
    )


@st.composite
def pods(draw: st.DrawFn, known_specs: list[PodSpec], name: str) -> Pod:
    """Draw a pod with one of the specs, bound or not, in any state."""
    return Pod(
        namespace=draw(st.sampled_from(NAMESPACES)),
        name=name,
        uid=f"uid-{name}",
        spec=draw(st.sampled_from(known_specs)),
        labels=draw(label_maps),
        controller=OwnerReference("apps/v1", "ReplicaSet", draw(st.sampled_from(["web", "gone"])), "uid-owner"),
        node_name=draw(st.sampled_from([*NODES, *NODES, "gone", ""])),
        phase=draw(st.sampled_from(["Running", "Running", "Running", "Pending", "Succeeded"])),
        deletion_timestamp=draw(st.sampled_from([None, None, None, DELETED])),
    )


def fixed_objects(state: ClusterState) -> None:
    """Add the objects that the drawn pods refer to."""
    state.replace("namespaces", [Namespace(name="shop", labels=Map(team="a")), Namespace(name="blog")])
    state.replace("services", [Service(namespace="shop", name="web", selector=Map(app="web"))])
    state.replace(
        "replicasets",
        [Workload(namespace=each, name="web", selector=LabelSelector(Map(app="web"))) for each in NAMESPACES],
    )
    in_zone_a = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement(ZONE, "In", ("a", "b")),)),))
    state.replace(
        "persistentvolumes",
        [
            PersistentVolume(name=f"pv-{name}", node_affinity=in_zone_a, csi_driver=DRIVER, csi_volume_handle=name)
            for name in ("data", "solo")
        ],
    )
    state.replace(
        "persistentvolumeclaims",
        [
            PersistentVolumeClaim(
                namespace=namespace, name=name, volume_name=f"pv-{name}", bind_completed=True, access_modes=(mode,)
            )
            for namespace in NAMESPACES
            for name, mode in (("data", "ReadWriteMany"), ("solo", "ReadWriteOncePod"))
        ],
    )
    state.replace("csinodes", [CSINode(name=name, volume_limits=Map({DRIVER: 1})) for name in NODES[::2]])


def rebuilt(snapshot: ClusterSnapshot, held: dict[ObjectKey, Pod]) -> ClusterSnapshot:
    """Return a snapshot with the same objects but these pods, built from scratch."""
    state = ClusterState()
    for resource in ("nodes", "namespaces", "replicasets", "persistentvolumes", "persistentvolumeclaims", "csinodes"):
        objects = getattr(snapshot, _FIELD[resource])
        state.replace(resource, list(objects.values()))
    state.replace("services", [each for names in snapshot.services.values() for each in names.values()])
    state.replace("pods", held.values())
    return state.snapshot


_FIELD = {
    "nodes": "nodes",
    "namespaces": "namespaces",
    "replicasets": "replica_sets",
    "persistentvolumes": "persistent_volumes",
    "persistentvolumeclaims": "persistent_volume_claims",
    "csinodes": "csi_nodes",
}
