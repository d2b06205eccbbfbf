"""Any object is either decoded or named and left out, and the next object is not affected."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respread.cluster.decode.decoder import Decoder

METADATA: dict[str, Any] = {
    "name": "x",
    "namespace": "shop",
    "uid": "u",
    "labels": {"topology.kubernetes.io/zone": "a"},
    "annotations": {"respread.dev/evict": "never", "storage.alpha.kubernetes.io/migrated-plugins": "a,b"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "DaemonSet", "name": "o", "uid": "o", "controller": True}],
    "creationTimestamp": "2026-03-01T00:00:00Z",
    "deletionTimestamp": "2026-03-01T00:00:00Z",
    "generation": 1,
}
SELECTOR: dict[str, Any] = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}],
}
TERM: dict[str, Any] = {
    "matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["4"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}],
}
AFFINITY_TERMS = [
    {"topologyKey": "zone", "labelSelector": SELECTOR, "namespaceSelector": SELECTOR, "namespaces": ["a"]}
]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CONTAINER: dict[str, Any] = {
    "name": "app",
    "resources": {"requests": {"cpu": "1"}},
    "ports": [{"containerPort": 1, "hostPort": 1, "hostIP": "10.0.0.1", "protocol": "TCP"}],
    "restartPolicy": "Always",
}
OBJECTS: dict[str, dict[str, Any]] = {
    "pods": {
        "spec": {
            "nodeName": "node-1",
            "containers": [CONTAINER],
            "initContainers": [CONTAINER],
            "resources": {"requests": {"cpu": "1"}},
            "overhead": {"cpu": "1"},
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-x"}},
                {"name": "tmp", "emptyDir": {"medium": ""}},
                {"name": "scratch", "ephemeral": {}},
                {"name": "rbd", "rbd": {"monitors": ["m"], "pool": "p", "image": "i", "readOnly": True}},
                {"name": "ebs", "awsElasticBlockStore": {"volumeID": "aws://zone-a/vol-1"}},
                {"name": "gce", "gcePersistentDisk": {"pdName": "d"}},
                {"name": "azure", "azureDisk": {"diskURI": "d", "kind": "Managed"}},
            ],
            "nodeSelector": {"disk": "ssd"},
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}},
                "podAffinity": {REQUIRED: AFFINITY_TERMS},
                "podAntiAffinity": {REQUIRED: AFFINITY_TERMS},
            },
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
            ],
            "priority": 1,
            "schedulingGates": [{"name": "g"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "reason": "x"}],
            "containerStatuses": [
                {"name": "app", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}}
            ],
            "resources": {"requests": {"cpu": "2"}},
        },
    },
    "nodes": {
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "poddisruptionbudgets": {
        "spec": {"selector": SELECTOR, "minAvailable": 1, "maxUnavailable": "1%"},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {"a": "2026-03-01T00:00:00Z"}},
    },
    "statefulsets": {
        "spec": {"replicas": 1, "selector": SELECTOR, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
        "status": {"replicas": 1},
    },
    "persistentvolumeclaims": {"spec": {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["a"]}},
    "persistentvolumes": {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "awsElasticBlockStore": {"volumeID": "aws://a/vol-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [TERM]}},
            "claimRef": {"namespace": "a", "name": "b"},
            "csi": {"driver": "d", "volumeHandle": "h"},
        }
    },
    "storageclasses": {"allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}]},
    "csinodes": {"spec": {"drivers": [{"name": "d", "allocatable": {"count": 1}}]}},
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
SUSPICIOUS = st.sampled_from(["", "aws://[/", "-", "1e1000000000", "__", "0", 0, -1, 2**70, [], {}, [None], {"": None}])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every member of every object and every entry of every list, with its container and key."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


@pytest.mark.parametrize("resource", sorted(OBJECTS))
@given(data=st.data())
def test_an_object_with_any_value_in_any_field_is_decoded_or_named(resource: str, data: st.DataObject) -> None:
    good = {"metadata": METADATA, **OBJECTS[resource]}
    changed = copy.deepcopy(good)
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = data.draw(st.sampled_from(places(changed)))
        container[key] = copy.deepcopy(data.draw(SUSPICIOUS | JSON))
    page = Decoder().decode_page(resource, json.dumps({"items": [changed, good]}).encode())

    assert len(page.items) + len(page.errors) == 2
    assert page.items[-1] == Decoder().decode_object(resource, good)
    for error in page.errors:
        assert error.resource == resource
        assert error.message
