"""The Lease that operators outside a cluster use."""

from __future__ import annotations

import msgspec
from immutables import Map

from respread.cluster.objects import Namespace
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.controller.lease import namespace_of_installed
from tests.worlds import NOW, cluster, pod, spec

OPERATOR = Map({"app.kubernetes.io/name": "respread", "app.kubernetes.io/component": "operator", "tier": "ops"})


def snapshot(*pods: Pod, namespaces: tuple[str, ...] = ("default", "shop")) -> ClusterSnapshot:
    return cluster([], pods, namespaces=[Namespace(name=each) for each in namespaces])


def of_operator(namespace: str, **fields: object) -> Pod:
    made = pod(f"respread-{namespace}", "", spec(), labels=OPERATOR, namespace=namespace)
    return msgspec.structs.replace(made, **fields)


def test_without_an_installed_operator_the_lease_is_in_the_default_namespace() -> None:
    other = pod("web", "", spec(), labels=OPERATOR.delete("app.kubernetes.io/component"), namespace="shop")
    assert namespace_of_installed(snapshot(other)) == "default"


def test_an_operator_in_another_namespace_is_found_by_its_pods() -> None:
    beside = of_operator("ops", name="old", phase="Failed"), pod("web", "", spec(), namespace="ops")
    assert namespace_of_installed(snapshot(of_operator("ops"), *beside)) == "ops"
    for gone in ({"phase": "Failed"}, {"deletion_timestamp": NOW}):
        assert namespace_of_installed(snapshot(of_operator("ops", **gone))) == "default"


def test_all_replicas_choose_the_same_of_several_namespaces() -> None:
    """That of the manifests even if its Deployment is scaled to zero."""
    assert namespace_of_installed(snapshot(of_operator("zoo"), of_operator("ops"))) == "ops"
    manifests = ("default", "respread-system")
    assert namespace_of_installed(snapshot(namespaces=manifests)) == "respread-system"
    assert namespace_of_installed(snapshot(of_operator("ops"), namespaces=manifests)) == "respread-system"
