"""Pods that have topology spread constraints and no node, with the reason that kube-scheduler would give."""

from __future__ import annotations

from collections.abc import Iterable

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.planning.audit.pending import WhyPending, why_pending
from respread.scheduling.predictor import Predictor
from respread.scheduling.verdict import Unknown
from respread.spread.group import SpreadGroup
from respread_cli.report.skew_report import PendingPods, RejectedNodesReport, WorkloadReference


def waiting_pods(snapshot: ClusterSnapshot, groups: Iterable[SpreadGroup]) -> list[Pod]:
    """Return the pods without a node that have the constraint of one of some groups."""
    templates = {
        (group.key.namespace, template.labels, id(template.spec)) for group in groups for template in group.carriers
    }
    return [pod for pod in snapshot.waiting_pods.values() if (pod.namespace, pod.labels, id(pod.spec)) in templates]


def pending_pods(pods: Iterable[Pod], predictor: Predictor | None) -> tuple[PendingPods, ...]:
    """Return why pods have no node, by workload and reason, the most pods first.

    Args:
        pods: pods without a node.
        predictor: of the cluster's schedulers, whose view shows the pods; None if not all is known that decides.
    """
    nodes = [] if predictor is None else sorted(predictor.view.snapshot.nodes)
    known: dict[tuple[str, Labels, int, str], WhyPending] = {}
    found: dict[tuple[WorkloadName, WhyPending], list[str]] = {}
    for pod in pods:
        own_volumes = pod.spec.stateful_claims or pod.spec.ephemeral_volumes
        template = pod.namespace, pod.labels, id(pod.spec), pod.name if own_volumes else ""
        if (why := known.get(template)) is None:
            unread = WhyPending(0, (), Unknown("rights", "not all that decides where pods go may be read"))
            why = known[template] = unread if predictor is None else why_pending(predictor.prepare(pod), nodes)
        found.setdefault((workload_of(pod), why), []).append(pod.name)
    reports = [_report(name, why, names) for (name, why), names in found.items()]
    return tuple(sorted(reports, key=lambda each: (-each.pods, each.namespace, str(each.workload), each.pod)))


def _report(name: WorkloadName, why: WhyPending, pods: list[str]) -> PendingPods:
    return PendingPods(
        namespace=name.namespace,
        workload=WorkloadReference(name.kind, name.name),
        pods=len(pods),
        pod=min(pods),
        message=str(why),
        rejections=tuple(
            RejectedNodesReport(
                plugin=each.plugin,
                topology_key=each.topology_key,
                nodes=each.nodes,
                message=f"{each.why} ({each.example})",
            )
            for each in why.rejected
        ),
    )
