"""A large cluster's objects, written directly into a sandbox's etcd.

Creating 150,000 pods through the API would take minutes, with a second request for each status. The API server also
reads JSON from etcd, and serves such objects like its own.

The program `python -m bench.ingest_world DIRECTORY PODS CHANGES` changes pods as fast as etcd allows.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import aiohttp
import msgspec

from respread_sandbox import ApiError, Sandbox

PODS_PER_WORKLOAD: Final = 30
PODS_PER_NODE: Final = 30
PODS_PER_NAMESPACE: Final = 600
ZONES: Final = ("zone-a", "zone-b", "zone-c")
REQUESTS_AT_ONCE: Final = 8
PUTS_PER_TRANSACTION: Final = 100
ETCD_SOCKET: Final = "etcd:1"
"""The path of etcd's socket, relative to the sandbox's directory."""
CREATED: Final = "2026-01-05T08:00:00Z"

_JsonObject: TypeAlias = dict[str, Any]
Entry: TypeAlias = tuple[str, _JsonObject]
"""A key in etcd, and its object."""
Request: TypeAlias = tuple[Literal["put", "txn", "deleterange"], _JsonObject]
"""A request to etcd's KV service."""


def pod(number: int, *, ready: bool = True) -> _JsonObject:
    """Return a running pod of a Deployment as the API server would serve it, about 4 KB of JSON."""
    workload = number // PODS_PER_WORKLOAD
    name, template = f"web-{workload}", f"{workload:08x}"
    started = {"lastProbeTime": None, "lastTransitionTime": CREATED}
    condition_types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    states = {"Ready": ready, "ContainersReady": ready}
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "pod-template-hash": template}
    token_mount = {
        "name": "kube-api-access",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{template}-{number:05x}",
            "generateName": f"{name}-{template}-",
            "namespace": namespace_of(number),
            "uid": str(UUID(int=number + 1)),
            "creationTimestamp": CREATED,
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{name}-{template}",
                    "uid": str(UUID(int=10**9 + workload)),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [_fields_of_the_controller(), _fields_of_the_kubelet()],
        },
        "spec": {
            "volumes": [{"name": "kube-api-access", "projected": {"sources": [], "defaultMode": 420}}],
            "containers": [
                {
                    "name": "web",
                    "image": "registry.example/shop/web:1.42.0",
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "region-1"}],
                    "resources": {
                        "limits": {"memory": "512Mi"},
                        "requests": {"cpu": f"{100 + workload % 7 * 50}m", "memory": "256Mi"},
                    },
                    "volumeMounts": [token_mount],
                    "readinessProbe": probe,
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "nodeName": node_name(number // PODS_PER_NODE),
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": str(states.get(kind, True)), **started} for kind in condition_types
            ],
            "hostIP": "10.1.0.1",
            "podIP": "10.2.0.1",
            "startTime": CREATED,
            "containerStatuses": [
                {
                    "name": "web",
                    "state": {"running": {"startedAt": CREATED}},
                    "lastState": {},
                    "ready": ready,
                    "restartCount": 0,
                    "image": "registry.example/shop/web:1.42.0",
                    "imageID": f"registry.example/shop/web@sha256:{'5f' * 32}",
                    "containerID": f"containerd://{number:064x}",
                    "started": True,
                }
            ],
            "qosClass": "Burstable",
        },
    }


def namespace_of(number: int) -> str:
    """Return the namespace of a pod."""
    return f"team-{number // PODS_PER_NAMESPACE}"


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number}"


def node(number: int) -> _JsonObject:
    """Return a Ready node."""
    labels = {
        "kubernetes.io/hostname": node_name(number),
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
    }
    capacity = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": CREATED}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node_name(number),
            "uid": str(UUID(int=2 * 10**9 + number)),
            "creationTimestamp": CREATED,
            "labels": labels,
        },
        "spec": {},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


def cluster(pods: int) -> Iterator[Entry]:
    """Yield all objects of a cluster with this number of pods, with their keys in etcd."""
    for number in range((pods + PODS_PER_NODE - 1) // PODS_PER_NODE):
        yield f"/registry/minions/{node_name(number)}", node(number)
    for number in range(pods):
        yield _pod_entry(number, ready=True)


def pod_changes(pods: int, changes: int) -> Iterator[Entry]:
    """Yield changes of pods from Ready to not Ready, and back in the next round."""
    for change in range(changes):
        yield _pod_entry(change % pods, ready=(change // pods) % 2 == 1)


def fill(sandbox: Sandbox, entries: Iterable[Entry]) -> None:
    """Write entries into the sandbox's etcd, many at a time."""
    entries = iter(entries)

    def batches() -> Iterator[Request]:
        while batch := [put(entry) for entry in itertools.islice(entries, PUTS_PER_TRANSACTION)]:
            yield "txn", {"success": [{"requestPut": put} for put in batch]}

    asyncio.run(_send_all(sandbox.files.directory, batches()))


def wait_until_served(sandbox: Sandbox) -> None:
    """Wait until the API server has read all objects in etcd."""
    version = sandbox.api.get("/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
    path = f"/api/v1/pods?limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan"
    while True:
        try:
            sandbox.api.get(path)
        except ApiError as error:
            if error.status != HTTPStatus.GATEWAY_TIMEOUT:  # the API server's answer while its cache is behind
                raise
        else:
            return


@asynccontextmanager
async def etcd(directory: Path) -> AsyncIterator[Callable[[Request], Awaitable[None]]]:
    """Yield a function that sends a request to the etcd of a sandbox in this directory and waits for the answer."""
    connector = aiohttp.UnixConnector(str(directory / ETCD_SOCKET), limit=REQUESTS_AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send(request: Request) -> None:
            method, body = request
            async with session.post(f"http://etcd/v3/kv/{method}", data=msgspec.json.encode(body)) as response:
                response.raise_for_status()
                await response.read()

        yield send


async def _send_all(directory: Path, requests: Iterable[Request]) -> None:
    requests = iter(requests)
    async with etcd(directory) as send:

        async def work() -> None:
            for request in requests:
                await send(request)

        await asyncio.gather(*(work() for _ in range(REQUESTS_AT_ONCE)))


def _pod_entry(number: int, *, ready: bool) -> Entry:
    body = pod(number, ready=ready)
    return f"/registry/pods/{body['metadata']['namespace']}/{body['metadata']['name']}", body


def put(entry: Entry) -> dict[str, str]:
    """Return the etcd request that writes an entry."""
    key, value = entry
    encoded = msgspec.json.encode(value)
    return {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(encoded).decode()}


def _fields(*paths: str) -> _JsonObject:
    fields: _JsonObject = {}
    for path in paths:
        inner = fields
        for step in path.split("/"):
            inner = inner.setdefault(f"f:{step}" if not step.startswith("k:") else step, {})
    return fields


def _fields_of_the_controller() -> _JsonObject:
    container = 'spec/containers/k:{"name":"web"}'
    return {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(
            "metadata/generateName",
            "metadata/labels/app.kubernetes.io~1name",
            "metadata/labels/pod-template-hash",
            'metadata/ownerReferences/k:{"uid":"00000000-0000-0000-0000-00003b9aca00"}',
            *(f"{container}/{field}" for field in ("env", "image", "name", "ports", "readinessProbe", "resources")),
            *(f"spec/{field}" for field in ("restartPolicy", "schedulerName")),
        ),
    }


def _fields_of_the_kubelet() -> _JsonObject:
    return {
        "manager": "kubelet",
        "operation": "Update",
        "apiVersion": "v1",
        "time": CREATED,
        "subresource": "status",
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(
            *(f'status/conditions/k:{{"type":"Ready"}}/{field}' for field in ("lastTransitionTime", "status", "type")),
            *(f"status/{field}" for field in ("containerStatuses", "hostIP", "phase", "podIP", "startTime")),
        ),
    }


def main() -> None:
    """Change pods as fast as etcd allows, each change with its own revision, from which watches continue."""
    directory, pods, changes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    asyncio.run(_send_all(directory, (("put", put(entry)) for entry in pod_changes(pods, changes))))


if __name__ == "__main__":
    main()
