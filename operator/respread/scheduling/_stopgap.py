"""Stopgap predicates until scheduling/ lands."""
from __future__ import annotations

from respread.cluster.node import Node
from respread.cluster.pod import NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration
from respread.cluster.selectors import Selector, compile_selector


def node_ok(node_selector, node_affinity, node: Node) -> bool:
    if any(node.labels.get(k) != v for k, v in node_selector.items()):
        return False
    if node_affinity is None:
        return True
    return any(_term(t, node) for t in node_affinity.node_selector_terms)


def _term(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_req(r, node.labels.get(r.key)) for r in term.match_expressions) and all(_req(r, node.name) for r in term.match_fields)


def _req(r: NodeSelectorRequirement, v: str | None) -> bool:
    if r.operator == "In": return v in r.values
    if r.operator == "NotIn": return v not in r.values
    if r.operator == "Exists": return v is not None
    if r.operator == "DoesNotExist": return v is None
    try:
        return int(v) > int(r.values[0]) if r.operator == "Gt" else int(v) < int(r.values[0])
    except (TypeError, ValueError):
        return False


def untolerated(tolerations: tuple[Toleration, ...], node: Node):
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            (not t.effect or t.effect == taint.effect) and (not t.key or t.key == taint.key) and (t.operator == "Exists" or t.value == taint.value) for t in tolerations
        ):
            return taint
    return None
def counts_as_pod(pod: Pod) -> bool:
    return bool(pod.node_name) and not pod.terminating and not pod.finished
def effective_selector(constraint, labels) -> Selector:
    return compile_selector(constraint.label_selector).with_labels([(k, labels[k]) for k in constraint.match_label_keys if k in labels])
