"""The result of `respread advise`: workloads that nothing keeps spread, the constraint that would, and what it costs.

docs/cli.md describes every field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.api.json_documents import decode_map
from respread.api.policy import ClusterPolicySpec, ConstraintRules, Policy
from respread.api.reasons import number_of
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Node
from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint, WorkloadName, workload_of
from respread.cluster.selectors import selector_of_labels
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.planning.audit.finding import PASSING_LABELS, PatchOperation
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.scheduling.filters.node_affinity import matches_node_affinity
from respread.scheduling.filters.topology_spread_score import HOSTNAME
from respread.scheduling.predictor import Predictor
from respread.spread.index import Spread, SpreadIndex
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.planned import PaceReport, pace_report
from respread_cli.report.skew_report import ClusterReport, short_topology_key
from respread_cli.report.target import WorkloadReference

ZONE: Final = "topology.kubernetes.io/zone"
Concentration: TypeAlias = Literal["OneNode", "OneZone", "Uneven"]
"""Worst first: all pods are on one node, or in one zone, or one domain has at least two pods more than another."""
Preset: TypeAlias = Literal["soft", "hard"]

_REVISION_LABELS: Final[Mapping[str, str]] = {
    "Deployment": "pod-template-hash",
    "Rollout": "rollouts-pod-template-hash",
}
_SPREADABLE: Final = frozenset(
    {"CloneSet", "Deployment", "ReplicaSet", "ReplicationController", "Rollout", "StatefulSet"}
)
_ORDER: Final[Mapping[Concentration, int]] = {"OneNode": 0, "OneZone": 1, "Uneven": 2}
_SEVERAL: Final = 2
_POLICY: Final = Policy(
    kind="ClusterRebalancePolicy",
    object_name="advice",
    spec=ClusterPolicySpec(
        mode="Enforce", constraints=ConstraintRules(when_unsatisfiable=("DoNotSchedule", "ScheduleAnyway"))
    ),
)
"""What costs are computed for: a policy that restores both kinds of constraints."""


class AdviceEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A workload, and the constraint that suits it."""

    namespace: str
    workload: WorkloadReference
    concentration: Concentration
    topology_key: str
    """Of the suggested constraint."""
    pods: int
    counts: dict[str, int]
    """Pods by domain of the topology key, also those that are empty."""
    constraint: dict[str, Any]
    """The suggested constraint, as in a manifest."""
    evictions: int
    """How many evictions would spread the pods that are there now."""
    pace: PaceReport
    """How long these take within the default limits."""
    patch: tuple[PatchOperation, ...]
    """A JSON patch of the workload, which starts a rollout."""
    message: str
    """Why, and what to know before the patch is applied."""


class AdviceReport(ClusterReport, frozen=True, kw_only=True, rename="camel"):
    """Advice for workloads without topology spread constraints, worst first."""

    kind: Literal["AdviceReport"] = "AdviceReport"
    preset: Preset
    looked_at: int
    """How many workloads have several pods and no constraint."""
    workloads: tuple[AdviceEntry, ...]

    def names(self) -> Iterator[str]:
        """Yield the workloads."""
        return (each.workload.full_name for each in self.workloads)


class _Candidate(NamedTuple):
    """A workload without constraints."""

    name: WorkloadName
    pods: tuple[Pod, ...]
    concentration: Concentration
    key: str
    counts: Mapping[str, int]
    selector: Mapping[str, str]
    shared: bool
    """Whether the selector matches pods of other workloads."""
    constraint: dict[str, Any]
    """As in a manifest, without defaults."""


def advice_report(
    view: ReadCluster,
    predictor: Predictor,
    *,
    preset: Preset,
    namespace: str | None,
    workloads: Iterable[str] = (),
    uneven: bool = False,
) -> AdviceReport:
    """Return advice for the workloads of a cluster.

    The predictor's view is changed. `soft` suggests ScheduleAnyway, `hard` DoNotSchedule. Workloads are names; none is
    all. `uneven` adds workloads that are in several zones, but unevenly.
    """
    snapshot = view.snapshot
    names = frozenset(workloads)
    found, looked_at = [], 0
    for name, pods in _unconstrained(snapshot, namespace):
        if names and name.name not in names:
            continue
        looked_at += 1
        candidate = _candidate(name, pods, snapshot, preset)
        if candidate is not None and (uneven or candidate.concentration != "Uneven"):
            found.append(candidate)
    entries = [_entry(each, cost, preset) for each, cost in zip(found, _costs(view, predictor, found), strict=True)]
    entries.sort(key=lambda each: (_ORDER[each.concentration], -each.pods, each.namespace, each.workload.name))
    return AdviceReport(
        source=view.source,
        time=view.time,
        notes=view.notes,
        preset=preset,
        looked_at=looked_at,
        workloads=tuple(entries),
    )


def _unconstrained(snapshot: ClusterSnapshot, namespace: str | None) -> Iterator[tuple[WorkloadName, tuple[Pod, ...]]]:
    """Yield the workloads with several running pods, none of which has a constraint."""
    by_workload: dict[WorkloadName, list[Pod]] = {}
    for pod in snapshot.pods.values():
        if namespace in (None, pod.namespace) and not pod.finished and not pod.terminating and pod.node_name:
            by_workload.setdefault(workload_of(pod), []).append(pod)
    for name, pods in sorted(by_workload.items()):
        if name.kind not in _SPREADABLE or len(pods) < _SEVERAL:
            continue
        if not any(each.spec.topology_spread_constraints for each in pods):
            yield name, tuple(pods)


def _candidate(
    name: WorkloadName, pods: tuple[Pod, ...], snapshot: ClusterSnapshot, preset: Preset
) -> _Candidate | None:
    """Return a workload with the constraint that suits it; None if its pods are spread, or have no choice."""
    spec = pods[0].spec
    zones = _counts(ZONE, spec, pods, snapshot.nodes)
    nodes = _counts(HOSTNAME, spec, pods, snapshot.nodes)
    key, counts = (ZONE, zones) if len(zones) >= _SEVERAL else (HOSTNAME, nodes)
    if len(counts) < _SEVERAL or max(counts.values()) - min(counts.values()) < _SEVERAL:
        return None
    inhabited = sum(count > 0 for count in counts.values())
    on_one_node = len({each.node_name for each in pods}) == 1
    concentration: Concentration = "OneNode" if on_one_node else "OneZone" if inhabited == 1 else "Uneven"
    labels = _identity(pods)
    if not labels:
        return None
    selector = selector_of_labels(Map(labels))
    shared = any(selector.matches(pod.labels) and workload_of(pod) != name for pod in snapshot.pods_in(name.namespace))
    constraint = _constraint(name.kind, key, len(counts), len(pods), labels, preset)
    return _Candidate(name, pods, concentration, key, counts, labels, shared, constraint)


def _counts(key: str, spec: PodSpec, pods: Iterable[Pod], nodes: Mapping[str, Node]) -> dict[str, int]:
    """Return the pods by domain, for the domains that the pods' node selector and affinity allow, also empty ones."""
    counts = {
        node.labels[key]: 0
        for node in nodes.values()
        if key in node.labels
        and not node.unschedulable
        and matches_node_affinity(spec.node_selector, spec.node_affinity, node)
    }
    there = Counter(nodes[pod.node_name].labels.get(key) for pod in pods if pod.node_name in nodes)
    counts |= {domain: count for domain, count in there.items() if domain is not None}
    return dict(sorted(counts.items()))


def _identity(pods: tuple[Pod, ...]) -> dict[str, str]:
    """Return the labels that all pods have, in all revisions."""
    shared = set(pods[0].labels.items()).intersection(*(set(each.labels.items()) for each in pods))
    return {key: value for key, value in sorted(shared) if key not in PASSING_LABELS}


def _constraint(
    kind: str, key: str, domains: int, pods: int, labels: Mapping[str, str], preset: Preset
) -> dict[str, Any]:
    hard, revision = preset == "hard", _REVISION_LABELS.get(kind)
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
        **({"minDomains": min(domains, pods)} if hard and key == ZONE else {}),
        "nodeTaintsPolicy": "Honor",
        **({} if revision is None else {"matchLabelKeys": [revision]}),
    }


def _costs(view: ReadCluster, predictor: Predictor, found: list[_Candidate]) -> Iterator[tuple[int, PaceReport]]:
    """Yield the evictions that would spread each workload if its pods had the constraint, and how long they take."""
    if not found:
        return
    specs: dict[tuple[WorkloadName, int], PodSpec] = {}
    changes: list[tuple[ObjectKey, Pod]] = []
    for each in found:
        constraint = msgspec.convert(each.constraint, TopologySpreadConstraint, dec_hook=decode_map)
        for pod in each.pods:
            at = each.name, id(pod.spec)
            if at not in specs:
                specs[at] = msgspec.structs.replace(pod.spec, topology_spread_constraints=(constraint,))
            changes.append((pod.key, msgspec.structs.replace(pod, spec=specs[at])))
    state = ClusterState(view.snapshot)
    state.apply("pods", changes)
    snapshot = state.snapshot
    spread: Spread = SpreadIndex().update(snapshot)
    plan = Planner(predictor).plan(snapshot, spread, PolicySetting((_POLICY,), view.priority_classes), now=view.time)
    for each in found:
        moves = [move for move in plan.moves if move.workload == each.name]
        yield len(moves), pace_report(snapshot, (_POLICY,), moves)


def _entry(candidate: _Candidate, cost: tuple[int, PaceReport], preset: Preset) -> AdviceEntry:
    evictions, pace = cost
    return AdviceEntry(
        namespace=candidate.name.namespace,
        workload=WorkloadReference.of(candidate.name),
        concentration=candidate.concentration,
        topology_key=candidate.key,
        pods=len(candidate.pods),
        counts=dict(candidate.counts),
        constraint=candidate.constraint,
        evictions=evictions,
        pace=pace,
        patch=(PatchOperation("add", "/spec/template/spec/topologySpreadConstraints", [candidate.constraint]),),
        message=_message(candidate, evictions, preset),
    )


def _message(candidate: _Candidate, evictions: int, preset: Preset) -> str:
    key, pods = short_topology_key(candidate.key), len(candidate.pods)
    full, most = max(candidate.counts.items(), key=lambda each: each[1])
    everyone = "Both pods are" if pods == _SEVERAL else f"All {pods} pods are"
    share = everyone if most == pods else f"{most} of {pods} pods are"
    parts = [f"{share} in {full}, and nothing keeps them spread over the {len(candidate.counts)} {key}s"]
    parts.append(
        f"The patch starts a rollout, which spreads the new pods; {number_of(evictions, 'eviction')} would spread these"
    )
    if preset == "soft":
        parts.append("A policy with ScheduleAnyway in constraints.whenUnsatisfiable keeps them spread")
    if any(pod.persistent_volume_claims for pod in candidate.pods):
        parts.append("Pods with PersistentVolumeClaims can only move to nodes that reach their volumes")
    if candidate.shared:
        parts.append("The labels also select pods of other workloads: narrow the labelSelector")
    return ". ".join(parts) + "."
