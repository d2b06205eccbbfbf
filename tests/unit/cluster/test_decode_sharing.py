"""Equal parts of pods are one object while it is used, because 150,000 pods must fit in memory."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import msgspec

from respread.cluster.decode.decoder import Decoder
from respread.cluster.decode.pod_content import PodContents, RawPodSpec
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod


def pod(name: str, *, owner: str = "ReplicaSet", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "shop",
            "name": name,
            "uid": name,
            "labels": labels or {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": True}],
        },
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}], **spec},
        "status": {"phase": "Running"},
    }


def decode(decoder: Decoder, obj: dict[str, Any] | bytes) -> Pod:
    decoded = decoder.decode_object("pods", obj)
    assert isinstance(decoded, Pod)
    return decoded


def test_pods_of_one_template_share_their_spec() -> None:
    decoder = Decoder()
    volume = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    one, two = (
        decode(
            decoder,
            pod(
                f"web-{each}",
                nodeName=f"node-{each}",
                hostname=f"web-{each}",
                volumes=[{"name": f"kube-api-access-{each}", **volume}],
            ),
        )
        for each in ("x7k2p", "m4q9z")
    )
    assert one.spec is two.spec
    assert one.labels is two.labels
    assert one.controller is two.controller
    assert one.namespace is two.namespace
    assert one.annotations is two.annotations
    assert (one.node_name, two.node_name) == ("node-x7k2p", "node-m4q9z")


def test_pods_of_a_stateful_set_share_a_spec_though_each_has_claims_of_its_own() -> None:
    decoder = Decoder()
    one, two = (
        decode(
            decoder,
            pod(
                f"db-{ordinal}",
                volumes=[
                    {"name": "data", "persistentVolumeClaim": {"claimName": f"data-db-{ordinal}"}},
                    {"name": "logs", "persistentVolumeClaim": {"claimName": f"logs-db-{ordinal}"}},
                    {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
                ],
            ),
        )
        for ordinal in (0, 1)
    )
    assert one.spec is two.spec
    assert one.persistent_volume_claims == ("shared", "data-db-0", "logs-db-0")
    assert two.persistent_volume_claims == ("shared", "data-db-1", "logs-db-1")


def test_pods_of_a_daemon_set_share_a_spec_though_each_is_for_its_own_node() -> None:
    decoder = Decoder()

    def affinity(node: str) -> dict[str, Any]:
        term = {
            "matchExpressions": [{"key": "os", "operator": "In", "values": ["linux"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
        }
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}

    one, two = (
        decode(decoder, pod(f"agent-{node}", owner="DaemonSet", nodeName=node, affinity=affinity(node)))
        for node in ("node-1", "node-2")
    )
    assert one.spec is two.spec
    assert one.spec.pinned_to_node
    linux = NodeSelectorRequirement("os", "In", ("linux",))
    assert one.spec.node_affinity == NodeSelector((NodeSelectorTerm((linux,)),))

    waiting = decode(decoder, pod("agent-3", owner="DaemonSet", affinity=affinity("node-3")))
    elsewhere = decode(decoder, pod("agent-4", owner="DaemonSet", nodeName="node-5", affinity=affinity("node-4")))
    of_no_daemon_set = decode(decoder, pod("web-1", nodeName="node-1", affinity=affinity("node-1")))
    for each, node in ((waiting, "node-3"), (elsewhere, "node-4"), (of_no_daemon_set, "node-1")):
        assert not each.spec.pinned_to_node
        pin = NodeSelectorRequirement("metadata.name", "In", (node,))
        assert each.spec.node_affinity == NodeSelector((NodeSelectorTerm((linux,), (pin,)),))


def test_a_daemon_set_pod_pinned_to_its_node_has_no_node_affinity() -> None:
    """Without the match by name, this term matches all nodes, although an empty term matches none."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    decoded = decode(Decoder(), pod("agent", owner="DaemonSet", nodeName="node-1", affinity=affinity))
    assert decoded.spec.pinned_to_node
    assert decoded.spec.node_affinity is None


def test_specs_that_differ_in_a_decoded_field_are_not_shared() -> None:
    decoder = Decoder()
    base = decode(decoder, pod("a"))
    others = [
        pod("b", priority=1),
        pod("c", tolerations=[{"operator": "Exists"}]),
        pod("d", nodeSelector={"disk": "ssd"}),
        pod("e", containers=[{"name": "a", "resources": {"requests": {"cpu": "2"}}}]),
        pod("f", volumes=[{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]),
        pod("g", volumes=[{"name": "x", "ephemeral": {}}]),
        pod("h", volumes=[{"name": "y", "ephemeral": {}}]),
    ]
    kept = [base, *(decode(decoder, each) for each in others)]
    assert len({id(each.spec) for each in kept}) == len(kept)


def test_a_known_template_is_recognized_by_its_bytes() -> None:
    """Of 150,000 pods, only the 5,000 templates are decoded completely."""
    contents = PodContents()
    volumes = [
        {"name": "kube-api-access-@", "projected": {}},
        {"name": "tmp-@", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-@"}},
    ]
    one, two = (
        contents.detach(
            msgspec.json.decode(
                json.dumps({"nodeName": f"node-{each}", "volumes": volumes}).replace("@", each), type=RawPodSpec
            ),
            f"db-{each}",
            of_daemon_set=False,
        )
        for each in ("1", "2")
    )
    assert (one[0], two[0]) == ("node-1", "node-2")
    assert one[1] == two[1]


def test_specs_that_differ_only_in_formatting_are_shared() -> None:
    """The same spec may be formatted differently in a page, in an event decoded by Kopf, and in a file."""
    decoder = Decoder()
    requests = [{"cpu": "1", "memory": "1Gi"}, {"memory": "1024Mi", "cpu": "1000m"}]
    one, two = (
        decode(
            decoder,
            json.dumps(
                pod(f"web-{indent}", containers=[{"name": "a", "resources": {"requests": amounts}}]), indent=indent
            ).encode(),
        )
        for amounts, indent in zip(requests, (None, 4), strict=True)
    )
    assert one.spec is two.spec
    assert one.labels is two.labels
    assert one.controller is two.controller


def test_words_of_an_owner_reference_that_no_object_has_are_cut() -> None:
    """The API server admits any text there, and kind and name are in statuses, metrics, logs and terminals."""
    kind, name = "Ki\x1b[2Jnd\n" + "k" * 100_000, "na\u202eme\x00" + "n" * 100_000
    body = pod("one")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v" * 100_000, "kind": kind, "name": name, "uid": "u" * 100_000, "controller": True}
    ]
    owner = decode(Decoder(), body).controller
    assert owner is not None
    assert (len(owner.api_version), len(owner.kind), len(owner.name), len(owner.uid)) == (317, 63, 253, 64)
    assert (owner.kind[:10], owner.name[:6]) == ("Ki?[2Jnd?k", "na?me?")


def test_specs_that_no_pod_uses_are_released() -> None:
    decoder = Decoder()
    kept = decode(decoder, pod("a"))
    gone = decode(decoder, pod("b", priority=7, labels={"app": "old"}))
    spec = weakref.ref(gone.spec)
    assert spec() is not None
    del gone
    gc.collect()
    assert spec() is None
    assert decode(decoder, pod("c")).spec is kept.spec
