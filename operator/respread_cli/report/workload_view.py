"""What `explain` reports, with the nodes of the pods and what every scale-down would leave, for the page."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from respread.cluster.meta import ObjectKey
from respread.cluster.state import ClusterSnapshot
from respread_cli.report.explain_report import ExplainReport
from respread_cli.report.planned import Planned
from respread_cli.report.scale_downs import (
    MOST_FORETOLD,
    NotForetoldError,
    Ranking,
    WorkloadPods,
    foretell,
    workloads_of,
)
from respread_cli.report.target import Target, WorkloadReference


class PodState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that `explain` lists, and its state."""

    name: str
    node: str | None
    phase: str
    ready: bool
    terminating: bool
    created: datetime | None


class NodeState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node."""

    name: str
    domains: dict[str, str]
    """Its values of the constraints' topology keys, by key."""
    ready: bool
    cordoned: bool
    taints: tuple[str, ...]
    """As in `key=value:effect`."""
    pods: int


class Outlook(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a scale-down would leave."""

    skew: int
    """The largest skew above what its constraint allows, 0 if all hold."""
    evictions: int
    """How many evictions would restore the constraints."""
    certain: bool


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A scale-down to a number of replicas, with each choice of pod deletion costs."""

    replicas: int
    as_it_is: Outlook
    with_costs: Outlook
    without_costs: Outlook


class Curve(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What scale-downs to all lower numbers of replicas would leave."""

    namespace: str
    workload: str
    replicas: int
    points: tuple[CurvePoint, ...]
    unknown: str | None
    """Why this is not known; null if it is."""


class WorkloadView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The workload view."""

    explain: ExplainReport
    pods: tuple[PodState, ...]
    nodes: tuple[NodeState, ...]
    curves: tuple[Curve, ...]


def workload_view(planned: Planned, target: Target, report: ExplainReport) -> WorkloadView:
    """Return the view of what is explained."""
    view = planned.view
    keys = tuple(dict.fromkeys(each.group.topology_key for each in report.constraints))
    pods = [
        pod for each in report.pods if (pod := view.snapshot.pods.get(ObjectKey(each.namespace, each.pod))) is not None
    ]
    names = sorted({pod.node_name for pod in pods if pod.node_name})
    found = workloads_of(view.snapshot, planned.spread, {each.namespace for each in target.workloads})
    return WorkloadView(
        explain=report,
        pods=tuple(
            PodState(
                name=pod.name,
                node=pod.node_name or None,
                phase=pod.phase,
                ready=pod.ready,
                terminating=pod.terminating,
                created=pod.creation_timestamp,
            )
            for pod in pods
        ),
        nodes=node_states(view.snapshot, names, keys),
        curves=tuple(_curve(found[name], view.time) for name in target.workloads if name in found),
    )


def node_states(snapshot: ClusterSnapshot, names: Iterable[str], keys: Collection[str]) -> tuple[NodeState, ...]:
    """Return nodes with their values of topology keys, without those that are gone."""
    return tuple(
        NodeState(
            name=name,
            domains={key: node.labels[key] for key in keys if key in node.labels},
            ready=node.ready,
            cordoned=node.unschedulable,
            taints=tuple(map(str, node.taints)),
            pods=len(snapshot.pods_by_node.get(name, ())),
        )
        for name in names
        if (node := snapshot.nodes.get(name)) is not None
    )


def _curve(workload: WorkloadPods, now: datetime) -> Curve:
    points: tuple[CurvePoint, ...] = ()
    unknown = None
    pods = len(workload.pods)
    if pods > MOST_FORETOLD:
        unknown = f"It has {pods:,} pods, more than {MOST_FORETOLD}: use What if for one number of replicas."
    else:
        try:
            points = tuple(
                CurvePoint(
                    replicas=replicas,
                    as_it_is=_outlook(workload, replicas, now, "as it is"),
                    with_costs=_outlook(workload, replicas, now, "with costs"),
                    without_costs=_outlook(workload, replicas, now, "without costs"),
                )
                for replicas in range(1, pods)
            )
        except NotForetoldError as error:
            unknown = f"It is not known which pods a scale-down would delete: {error}."
    return Curve(
        namespace=workload.name.namespace,
        workload=str(WorkloadReference.of(workload.name)),
        replicas=pods,
        points=points,
        unknown=unknown,
    )


def _outlook(workload: WorkloadPods, replicas: int, now: datetime, ranking: Ranking) -> Outlook:
    forecast = foretell(workload, replicas, now, ranking)
    return Outlook(
        skew=max((group.skew - group.key.max_skew for group in forecast.groups if group.violated), default=0),
        evictions=forecast.evictions,
        certain=forecast.certain,
    )
