"""Constraints that leave only domains without room, so that pods stay Pending although others have room."""

from __future__ import annotations

from respread.planning.audit.cures import listed, pods_of, unsatisfiable
from respread.planning.audit.finding import AuditRule, Finding
from respread.planning.audit.subject import Subject
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.node_table import NodeTable
from respread.spread.group import SpreadGroup, domain_map


def full_domains(subject: Subject, group: SpreadGroup, pod: PreparedPod, table: NodeTable) -> Finding | None:
    """Find a constraint that allows one more pod only in domains whose nodes take none.

    If no node anywhere takes the pod, another one is at fault, and there is no finding.

    Args:
        subject: the constraint.
        group: its pods and domains.
        pod: one more of its pods, on the view of the cluster.
        table: the nodes of that view.
    """
    limit = group.minimum + group.key.max_skew
    allowed = sorted(domain for domain in group.domains.nodes if group.count(domain) < limit)
    if pod.unknown is not None or not subject.counts_own_pods or not allowed:
        return None
    nodes = domain_map(table, group).nodes
    maybe = pod.admitted(spread=False, certainly=False)
    if any(nodes[domain] & maybe for domain in allowed):
        return None
    surely = pod.admitted(spread=False)
    if not any(there & surely for domain, there in nodes.items() if domain not in allowed):
        return None
    node = min(group.domains.nodes[allowed[0]])
    why = next((each.message for each in pod.rejections(node) if each.plugin != "PodTopologySpread"), "")
    then = "a scale-up leaves one Pending"
    if subject.waiting:
        then = f"{pods_of(subject.waiting)} of {subject.pods} can't be placed"
    message = (
        f"only {listed(allowed)} may have another pod, and no node there takes one ({node} {why}); all others have "
        f"{pods_of(limit)} or more, which is the most until then, so {then}"
    )
    cure = f"make room in {listed(allowed)}, or add nodes there; nodes in other domains don't help"
    return unsatisfiable(
        AuditRule.FULL_DOMAINS, subject, message, cure, (), "Now" if subject.waiting else "NextScaleUp"
    )
