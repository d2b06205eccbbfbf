"""The behavior of simulated nodes and pods: KWOK's Stage objects.

A Stage selects objects by jq expressions over them and says what happens to these next, after which delay. A pod whose
delay is 0 gets Running and Ready in one step, as most pods of most tests; else it first runs without being Ready.

Delays are computed from times written in the pod (scheduled, deleted), since KWOK restarts a plain delay whenever
somebody touches the pod. These times are in whole seconds; a second more makes sure that no delay is cut short.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from respread_sandbox.options import SandboxOptions

MANAGED_NODE_LABEL: Final = "sandbox.respread.dev/kubelet=simulated"
"""The label of nodes with a working kubelet. Without it they send no heartbeats, and their pods neither start nor stop.
"""
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
