"""What is simulated: nodes, to add, remove and let fail, and by KWOK's Stage objects what they and pods do.

A Stage selects objects by jq expressions over them and says what happens to these next, after which delay. A pod whose
delay is 0 gets Running and Ready in one step, as most pods of most tests; else it first runs without being Ready.

Delays are computed from times written in the pod (scheduled, deleted), since KWOK restarts a plain delay whenever
somebody touches the pod. These times are in whole seconds; a second more makes sure that no delay is cut short.
"""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import yaml

from respread_sandbox.api import NotFoundError, SandboxApi
from respread_sandbox.options import NodeShape, SandboxOptions

MANAGED_NODE_LABEL: Final = "sandbox.respread.dev/kubelet=simulated"
"""The label of nodes with a working kubelet. Others send no heartbeats, and their pods neither start nor stop."""
READY_AFTER_ANNOTATION: Final = "sandbox.respread.dev/ready-after-seconds"
TERMINATE_AFTER_ANNOTATION: Final = "sandbox.respread.dev/terminate-after-seconds"
NEVER: Final = "never"

STARTING: Final = "Starting"
"""The reason of the Ready condition of pods that are not Ready yet, which differs from pods that a test made unready.
"""

DELETED_AT: Final = "(.metadata.deletionTimestamp | fromdate) - (.metadata.deletionGracePeriodSeconds // 0)"
"""The API server stores the time at which the grace period ends."""

CONDITIONS: Final = """\
conditions:
{{- range $type := list "PodReadyToStartContainers" "Initialized" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ Now | Quote }}}
{{- end }}
"""

RUNNING: Final = """\
phase: Running
startTime: {{ Now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{- $meta := .metadata }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) $meta.uid $meta.name $meta.namespace | Quote }}
initContainerStatuses:
{{- range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  {{- if eq (or .restartPolicy "") "Always" }}
  started: true
  state: {running: {startedAt: {{ Now | Quote }}}}
  {{- else }}
  state:
    terminated: {exitCode: 0, reason: Completed, startedAt: {{ Now | Quote }}, finishedAt: {{ Now | Quote }}}
  {{- end }}
{{- end }}
"""
TTL_OF_CACHES: Final = {"node.alpha.kubernetes.io/ttl": "0"}
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
REGION: Final = "region-1"
PARALLEL_REQUESTS: Final = 8
MANAGED_KEY, MANAGED_VALUE = MANAGED_NODE_LABEL.split("=")
DEFAULT_SHAPE: Final = NodeShape()


def stage_documents(options: SandboxOptions) -> str:
    """Return all Stage objects of a sandbox, as one file of YAML documents."""
    ready_after = _annotation(READY_AFTER_ANNOTATION, options.pod_ready_seconds)
    terminate_after = _annotation(TERMINATE_AFTER_ANNOTATION, options.pod_termination_seconds)
    stages = [
        _stage("node-ready", "Node", [_where(_condition("Ready"), "NotIn", "True")], _node_status()),
        _stage(
            "pod-ready-at-once",
            "Pod",
            [*_alive_in("Pending"), _where(ready_after, "In", "0")],
            _pod_status(ready=True, starts=True),
        ),
        _stage(
            "pod-running",
            "Pod",
            [*_alive_in("Pending"), _where(ready_after, "NotIn", "0")],
            _pod_status(ready=False, starts=True),
        ),
        _stage(
            "pod-ready",
            "Pod",
            [
                *_alive_in("Running"),
                _where(_condition("Ready", "reason"), "In", STARTING),
                _where(ready_after, "NotIn", NEVER),
            ],
            _pod_status(ready=True, starts=False),
            delay=_remaining(f"{_condition('PodScheduled', 'lastTransitionTime')} | fromdate", ready_after),
        ),
        _stage(
            "job-pod-completed",
            "Pod",
            [*_alive_in("Running"), _where("(.metadata.ownerReferences // [])[].kind", "In", "Job")],
            "phase: Succeeded\n",
        ),
        _stage(
            "pod-terminated",
            "Pod",
            [_where(".metadata.deletionTimestamp", "Exists")],
            None,
            delay=_remaining(DELETED_AT, terminate_after),
        ),
    ]
    text: str = yaml.safe_dump_all(stages, sort_keys=False)
    return text


def _stage(
    name: str, kind: str, where: list[dict[str, Any]], status_template: str | None, *, delay: str | None = None
) -> dict[str, Any]:
    patch = {"subresource": "status", "root": "status", "type": "strategic", "template": status_template}
    step: dict[str, Any] = {"delete": True} if status_template is None else {"patches": [patch]}
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": where},
        "next": step,
    }
    if delay is not None:
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": delay}}}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _where(expression: str, operator: str, *values: str) -> dict[str, Any]:
    where: dict[str, Any] = {"key": expression, "operator": operator}
    if values:
        where["values"] = list(values)
    return where


def _alive_in(phase: str) -> list[dict[str, Any]]:
    return [_where(".metadata.deletionTimestamp", "DoesNotExist"), _where(".status.phase", "In", phase)]


def _condition(kind: str, field: str = "status") -> str:
    return f'((.status.conditions // [])[] | select(.type == "{kind}") | .{field})'


def _annotation(key: str, default: float) -> str:
    return f'(.metadata.annotations["{key}"] // "{default:g}")'


def _remaining(since: str, seconds: str) -> str:
    """Return a jq expression for the Go duration left until `seconds` (a string) after `since` (a Unix time)."""
    return (
        f"({seconds} | tonumber) as $delay | ({since}) as $since"
        ' | if $delay == 0 then "0s" else ($since + 1 + $delay - now | if . < 0 then 0 else . end | tostring) + "s" end'
    )


def _node_status() -> str:
    return (
        "conditions:\n"
        '{{- range $type, $status := dict "Ready" "True" "MemoryPressure" "False" "DiskPressure" "False"'
        ' "PIDPressure" "False" }}\n'
        "- type: {{ $type }}\n"
        "  status: {{ $status | Quote }}\n"
        "  reason: Simulated\n"
        "  message: this node is simulated\n"
        "  lastHeartbeatTime: {{ Now | Quote }}\n"
        "  lastTransitionTime: {{ Now | Quote }}\n"
        "{{- end }}\n"
    )


def _pod_status(*, ready: bool, starts: bool) -> str:
    status, reason = ("True", "") if ready else ("False", STARTING)
    conditions = "".join(
        f'- {{type: {kind}, status: "{status}", reason: "{reason}", lastTransitionTime: {{{{ Now | Quote }}}}}}\n'
        for kind in ("ContainersReady", "Ready")
    )
    containers = (
        "containerStatuses:\n"
        "{{- range .spec.containers }}\n"
        "- name: {{ .name | Quote }}\n"
        "  image: {{ .image | Quote }}\n"
        '  imageID: ""\n'
        "  restartCount: 0\n"
        f"  ready: {str(ready).lower()}\n"
        "  started: true\n"
        "  state: {running: {startedAt: {{ Now | Quote }}}}\n"
        "{{- end }}\n"
    )
    return (CONDITIONS if starts else "conditions:\n") + conditions + containers + (RUNNING if starts else "")


class SimulatedNodes:
    """The nodes of one sandbox."""

    def __init__(self, api: SandboxApi) -> None:
        self._api = api

    def names(self) -> list[str]:
        """Return the names of all nodes, sorted."""
        return sorted(node["metadata"]["name"] for node in self._api.get("/api/v1/nodes")["items"])

    def ready(self) -> set[str]:
        """Return the names of the nodes without the taint `node.kubernetes.io/not-ready`."""
        return {
            node["metadata"]["name"]
            for node in self._api.get("/api/v1/nodes?resourceVersion=0")["items"]
            if all(taint["key"] != NOT_READY_TAINT for taint in node["spec"].get("taints", ()))
        }

    def add(self, count: int, zone: str, shape: NodeShape = DEFAULT_SHAPE) -> list[str]:
        """Add Ready nodes to a zone and return their names; those of zone-a are node-a1, node-a2, and so on.

        As for any node, the controller manager takes the taint `node.kubernetes.io/not-ready` off a moment later; see
        `ready`.
        """
        taken = set(self.names())
        prefix = f"node-{zone.removeprefix('zone-')}"
        free = (name for number in itertools.count(1) if (name := f"{prefix}{number}") not in taken)
        added = list(itertools.islice(free, count))
        manifests = [manifest(name, zone, shape, len(taken) + index) for index, name in enumerate(added)]
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            list(pool.map(lambda body: self._api.request("POST", "/api/v1/nodes", body), manifests))
        return added

    def remove(self, *names: str) -> None:
        """Delete nodes and their pods at once. The controller manager alone would take a minute to delete the pods."""
        for name in names:
            self._api.request("DELETE", f"/api/v1/nodes/{name}")
        for pod in self._api.get("/api/v1/pods")["items"] if names else ():
            if pod["spec"].get("nodeName") in names:
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                with contextlib.suppress(NotFoundError):
                    self._api.request("DELETE", f"{path}?gracePeriodSeconds=0")

    def cordon(self, *names: str) -> None:
        """Make nodes unschedulable."""
        self._patch(names, {"spec": {"unschedulable": True}})

    def uncordon(self, *names: str) -> None:
        """Make nodes schedulable again."""
        self._patch(names, {"spec": {"unschedulable": None}})

    def fail(self, *names: str) -> None:
        """Stop the kubelets of nodes: they send no more heartbeats, and the condition Ready becomes Unknown at once.

        The controller manager then taints the nodes unreachable and evicts their pods when their tolerations run out
        (300 s unless a pod or kube-apiserver's `--default-unreachable-toleration-seconds` says less); nobody confirms
        that these pods have stopped, so they terminate until `recover`.
        """
        self._patch(names, {"metadata": {"labels": {MANAGED_KEY: None}}})
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "failed on purpose"}
        for name in names:
            body = {"status": {"conditions": [unknown]}}
            self._api.request("PATCH", f"/api/v1/nodes/{name}/status", body, patch_type="strategic-merge")

    def recover(self, *names: str) -> None:
        """Restart the kubelets of nodes."""
        self._patch(names, {"metadata": {"labels": {MANAGED_KEY: MANAGED_VALUE}}})

    def delete_leases(self) -> None:
        """Delete the Leases of all nodes, so that a new KWOK takes the nodes over at once."""
        self._api.request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")

    def _patch(self, names: tuple[str, ...], body: dict[str, Any]) -> None:
        for name in names:
            self._api.request("PATCH", f"/api/v1/nodes/{name}", body)


def manifest(name: str, zone: str, shape: NodeShape, number: int) -> dict[str, Any]:
    """Return a Node that is Ready, as its kubelet would register it; its IP address is derived from `number`."""
    capacity = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods)}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",  # the controller manager would add these two and the annotation below
        "beta.kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": zone,
        MANAGED_KEY: MANAGED_VALUE,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | shape.labels, "annotations": TTL_OF_CACHES},
        "spec": {"taints": list(shape.taints)} if shape.taints else {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": f"10.{128 + (number >> 16 & 63)}.{number >> 8 & 255}.{number & 255}"},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Simulated", "message": "this node is simulated"}
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "simulated",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": "simulated",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "",
                "systemUUID": "",
            },
        },
    }
