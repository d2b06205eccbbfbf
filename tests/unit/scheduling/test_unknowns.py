"""Unknowns are reported, and then no node is predicted as feasible."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.objects import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, Unread, Workload
from respread.cluster.pod import MigratedVolume, Pod, PodAffinityTerm, PodSpec
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.scheduling.configuration import Profile, SchedulerConfiguration
from respread.scheduling.predictor import Predictor
from respread.scheduling.verdict import Unknown
from respread.scheduling.view.cluster_view import ClusterView
from tests.spread_profiles import spread_profile
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pod, spec

HARD_DEFAULTS = spread_profile(
    {
        "defaultingType": "List",
        "defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}],
    }
)


def world(**others: Any) -> ClusterSnapshot:
    return cluster([node("n1", "a"), node("n2", "b")], [], **others)


def unknown(new: Pod, snapshot: ClusterSnapshot | None = None, profile: Profile | None = None) -> Unknown | None:
    configuration = SchedulerConfiguration(profiles=Map({"default-scheduler": profile or Profile()}))
    prepared = Predictor(ClusterView(snapshot or world()), configuration).prepare(new)
    if prepared.unknown is not None:
        assert prepared.feasible_nodes() == []
    else:
        assert prepared.feasible_nodes()
    return prepared.unknown


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (PodSpec(scheduler_name="volcano"), "schedulerName: the rules of the pod's scheduler, volcano, are not known"),
        (
            PodSpec(has_scheduling_gates=True),
            "schedulingGates: the pod is not scheduled until its scheduling gates are removed",
        ),
        (
            PodSpec(is_in_scheduling_group=True),
            "schedulingGroup: the pod is placed together with others of its group, and where is not known",
        ),
        (
            PodSpec(has_resource_claims=True),
            "resourceClaims: the pod has dynamic resources, and where they can be allocated is not known",
        ),
        (
            PodSpec(needs_declared_features=True),
            "declaredFeatures: the pod needs a feature of its node, and which nodes declare it is not known",
        ),
        (PodSpec(pinned_to_node=True), "DaemonSet: the pod belongs on one node, and which one is not known"),
        (PodSpec(shared_claims=("data",)), "PersistentVolumeClaim: the claim data does not exist, or is not known"),
        (
            PodSpec(shared_claims=("late", "now", "late")),
            "PersistentVolumeClaim: claim now has no volume, and where it may get one is not known",
        ),
    ],
)
def test_every_kind_of_unknown_is_named(of: PodSpec, expected: str) -> None:
    snapshot = world(
        persistentvolumeclaims=[
            PersistentVolumeClaim(namespace="default", name=name, storage_class_name=name) for name in ("late", "now")
        ],
        storageclasses=[StorageClass(name="late", provisioner="disks.io", volume_binding_mode="WaitForFirstConsumer")],
    )
    assert str(unknown(pod("new", "", of), snapshot)) == expected


def test_the_claims_of_a_new_pod_are_unknown_before_it_has_a_name() -> None:
    claims = [PersistentVolumeClaim(namespace="default", name="data-web-0", volume_name="pv", bind_completed=True)]
    snapshot = world(persistentvolumeclaims=claims, persistentvolumes=[PersistentVolume(name="pv")])
    of = PodSpec(stateful_claims=("data",))
    assert unknown(pod("web-0", "", of), snapshot) is None
    for new in (of, PodSpec(ephemeral_volumes=("scratch",))):
        named = unknown(pod("", "", new), snapshot)
        assert named is not None
        assert named.message == "the new pod gets claims of its own, which do not exist yet"


EVERYWHERE = PodSpec(pod_anti_affinity=(PodAffinityTerm(ZONE, LabelSelector(), namespace_selector=LabelSelector()),))
HERE = PodSpec(pod_anti_affinity=(PodAffinityTerm(ZONE, LabelSelector(Map(app="db"))),))


@pytest.mark.parametrize(
    ("resource", "key", "of", "matters"),
    [
        ("namespaces", ObjectKey("", "default"), PodSpec(), True),
        ("namespaces", ObjectKey("", "other"), HERE, False),
        ("namespaces", ObjectKey("", "other"), EVERYWHERE, True),
        ("persistentvolumes", ObjectKey("", "default"), PodSpec(), False),
        ("persistentvolumes", ObjectKey("", "pv"), PodSpec(shared_claims=("data",)), True),
        ("pods", ObjectKey("default", "db"), PodSpec(), False),
        ("pods", ObjectKey("default", "db"), HERE, True),
        ("pods", ObjectKey("other", "db"), HERE, False),
        ("pods", ObjectKey("other", "db"), EVERYWHERE, True),
        ("services", ObjectKey("default", "db"), PodSpec(), True),
        ("services", ObjectKey("other", "db"), PodSpec(), False),
        ("services", ObjectKey("default", "db"), spec(constraint(ZONE)), False),
    ],
)
def test_an_object_that_cannot_be_read_matters_to_pods_that_depend_on_it(
    resource: str, key: ObjectKey, of: PodSpec, *, matters: bool
) -> None:
    state = ClusterState(world())
    state.note_unread(resource, [(key, Unread(fault="what it says", node_name="n1", labels_read=False))])
    found = unknown(pod("new", "", of), state.snapshot)
    assert (found is not None and found.subject == "UnreadObject") is matters


def test_a_profile_with_unknown_plugins_allows_no_prediction() -> None:
    found = unknown(pod("new", "", PodSpec()), profile=Profile(unknown=("plugin Coscheduling", "extender http://x")))
    assert found == Unknown(
        "scheduler configuration",
        "default-scheduler has plugin Coscheduling, extender http://x, which may refuse any node",
    )


def test_another_scheduler_is_known_if_the_configuration_has_its_profile() -> None:
    configuration = SchedulerConfiguration(profiles=Map({"batch": Profile()}))
    predictor = Predictor(ClusterView(world()), configuration)
    assert predictor.prepare(pod("new", "", PodSpec(scheduler_name="batch"))).unknown is None
    assert predictor.prepare(pod("new", "", PodSpec())).unknown is not None


def test_hard_default_constraints_need_a_known_owner() -> None:
    new = pod("new", "", PodSpec())
    found = unknown(new, profile=HARD_DEFAULTS)
    assert found is not None
    assert found.subject == "PodTopologySpread defaults"
    assert found.message.endswith("depends on the selector of ReplicaSet web, which is not known")
    owner = Workload(namespace="default", name="web", selector=None)
    assert unknown(new, world(replicasets=[owner]), HARD_DEFAULTS) is None
    own = pod("new", "", spec(constraint(ZONE)))
    assert unknown(own, profile=HARD_DEFAULTS) is None
    job = pod("new", "", PodSpec(), controller=OwnerReference("batch/v1", "Job", "web", "uid"))
    assert unknown(job, profile=HARD_DEFAULTS) is None


def test_a_daemon_set_pod_fits_only_its_node() -> None:
    prepared = Predictor(ClusterView(world())).prepare(pod("ds-1", "n2", PodSpec(pinned_to_node=True)))
    assert prepared.unknown is None
    assert prepared.feasible_nodes() == ["n2"]
    why = "NodeAffinity: does not satisfy the node its DaemonSet made it for"
    assert [str(each) for each in prepared.rejections("n1")] == ["NodeName: the pod names node n2", why]


def test_an_error_in_a_filter_ends_the_scheduling_of_the_pod() -> None:
    """If an `ephemeral` claim is another pod's, or a disk can't be migrated, NodeVolumeLimits fails, not rejects."""
    stranger = pod("other", "n1", PodSpec(ephemeral_volumes=("scratch",)))
    snapshot = cluster(
        [node("n1"), node("n2")],
        [stranger],
        persistentvolumeclaims=[
            PersistentVolumeClaim(namespace="default", name="data", volume_name="pv", bind_completed=True),
            PersistentVolumeClaim(namespace="default", name="other-scratch", volume_name="pv", bind_completed=True),
        ],
        persistentvolumes=[PersistentVolume(name="pv", csi_driver="disks.io", csi_volume_handle="v")],
        csinodes=[CSINode(name="n1", volume_limits=Map({"disks.io": 9}))],
    )
    for of, message in (
        (PodSpec(shared_claims=("data",)), "was not made for pod default/other, which is not its owner"),
        (PodSpec(migrated_volumes=(MigratedVolume("disks", "disks.io", error="can't be read"),)), "can't be read"),
    ):
        prepared = Predictor(ClusterView(snapshot)).prepare(pod("new", "", of))
        (rejection,) = prepared.rejections("n1")
        assert rejection.message.endswith(message)
        assert (prepared.rejections("n2"), prepared.feasible_nodes()) == ((), [])
        elsewhere = msgspec.structs.replace(of, node_selector=Map({HOSTNAME: "n2"}))
        assert Predictor(ClusterView(snapshot)).prepare(pod("new", "", elsewhere)).feasible_nodes() == ["n2"]
