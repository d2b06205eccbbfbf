"""NodeAffinity: nodeSelector and required node affinity. A node must satisfy both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from respread.cluster.incremental import bounded_cache
from respread.cluster.meta import Labels
from respread.cluster.objects import Node
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from respread.cluster.selectors import SelectorError, requirement
from respread.scheduling.verdict import FixedFilter
from respread.scheduling.view.node_table import NodeSet, NodeTable, union

NAME_FIELD: Final = "metadata.name"

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


def matches_node_affinity(node_selector: Labels, node_affinity: NodeSelector | None, node: Node) -> bool:
    """Return whether a node satisfies a pod's nodeSelector and required node affinity (`RequiredNodeAffinity.Match`).

    At least one term of the affinity must match with all of its requirements. A term without requirements never
    matches.
    """
    labels = node.labels
    for key, value in node_selector.items():
        if labels.get(key) != value:
            return False
    return node_affinity is None or matches_node_selector(node_affinity, node.name, labels)


def matches_node_selector(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a term of a node selector matches a node."""
    return any(_matches_term(term, name, labels) for term in selector.node_selector_terms)


def _is_valid_term(term: NodeSelectorTerm) -> bool:
    """Return whether the scheduler can parse a term. A term with a requirement that it can't parse matches no node."""
    return all(map(_is_valid_expression, term.match_expressions)) and all(map(_is_valid_field, term.match_fields))


def _integer_of(text: str) -> int | None:
    """Return the integer for `Gt` and `Lt`: 64 bits and decimal, or None."""
    if _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if _INT64_MIN <= value <= _INT64_MAX else None


def _value_test(expression: NodeSelectorRequirement) -> Callable[[str], bool]:
    """Return a test for `In`, `NotIn`, `Gt` or `Lt` of a label's value, for nodes that have the label."""
    values = frozenset(expression.values)
    if expression.operator == "In":
        return values.__contains__
    if expression.operator == "NotIn":
        return lambda value: value not in values
    limit = int(expression.values[0])
    if expression.operator == "Gt":
        return lambda value: (number := _integer_of(value)) is not None and number > limit
    return lambda value: (number := _integer_of(value)) is not None and number < limit


def _matches_term(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not (term.match_expressions or term.match_fields) or not _is_valid_term(term):
        return False
    return all(_matches_expression(each, labels) for each in term.match_expressions) and all(
        _matches_field(each, name) for each in term.match_fields
    )


def _matches_expression(expression: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    if value is None:
        return expression.operator in {"NotIn", "DoesNotExist"}
    if expression.operator == "Exists":
        return True
    return expression.operator != "DoesNotExist" and _value_test(expression)(value)


def _matches_field(expression: NodeSelectorRequirement, name: str) -> bool:
    """Return whether a requirement of `matchFields` matches the node with that name. Other fields are empty."""
    value = name if expression.key == NAME_FIELD else ""
    return (value == expression.values[0]) == (expression.operator == "In")


def _size(expression: NodeSelectorRequirement) -> int:
    return len(expression.values)


@bounded_cache(_size)
def _is_valid_expression(expression: NodeSelectorRequirement) -> bool:
    try:
        match expression.operator:
            case "Gt" | "Lt":
                requirement(expression.key, "In", expression.values)
                return len(expression.values) == 1 and _integer_of(expression.values[0]) is not None
            case operator:
                requirement(expression.key, operator, expression.values)
                return True
    except SelectorError:
        return False


def _is_valid_field(expression: NodeSelectorRequirement) -> bool:
    return expression.operator in {"In", "NotIn"} and len(expression.values) == 1


def nodes_with_affinity(table: NodeTable, node_selector: Labels, node_affinity: NodeSelector | None) -> NodeSet:
    """Return the nodes that `matches_node_affinity` accepts."""
    return table.derived(
        ("affinity", node_selector, node_affinity), lambda: _nodes_with_affinity(table, node_selector, node_affinity)
    )


def nodes_with_volume_affinity(table: NodeTable, volume_affinity: NodeSelector | None) -> NodeSet:
    """Return the nodes that satisfy a volume's node affinity, which only uses labels (`CheckNodeAffinity`)."""
    if volume_affinity is None:
        return table.every
    return table.derived(
        ("volume affinity", volume_affinity), lambda: _nodes_selected(table, volume_affinity, with_fields=False)
    )


def prepare(table: NodeTable, pod: Pod, added_affinity: NodeSelector | None) -> FixedFilter:
    """Return the filter for a pod.

    A DaemonSet's pod must go to the node that it is bound to. `added_affinity` is the required part of `addedAffinity`
    in the plugin's arguments.
    """
    spec = pod.spec
    added = table.every if added_affinity is None else _nodes_selected(table, added_affinity, with_fields=True)

    def why(slot: int) -> str:
        if not added >> slot & 1:
            return "does not satisfy the addedAffinity of the scheduler's configuration"
        return f"does not satisfy {describe_affinity(spec.node_selector, spec.node_affinity)}"

    return FixedFilter("NodeAffinity", own_nodes(table, pod) & added, why)


def own_nodes(table: NodeTable, pod: Pod) -> NodeSet:
    """Return the nodes that satisfy a pod's own nodeSelector and required node affinity.

    For a bound pod of a DaemonSet, this is its node. The node of an unbound one is unknown, so the set is empty.
    """
    nodes = nodes_with_affinity(table, pod.spec.node_selector, pod.spec.node_affinity)
    if pod.spec.pinned_to_node:
        return nodes & table.named((pod.node_name,))
    return nodes


def describe_affinity(node_selector: Labels, node_affinity: NodeSelector | None) -> str:
    """Return nodeSelector and required node affinity in words."""
    parts = []
    if node_selector:
        parts.append("nodeSelector " + ", ".join(f"{key}={value}" for key, value in sorted(node_selector.items())))
    if node_affinity is not None:
        terms = (
            " and ".join(map(_describe, (*term.match_expressions, *term.match_fields))) or "(nothing)"
            for term in node_affinity.node_selector_terms
        )
        parts.append("node affinity " + ", or ".join(terms))
    return " and ".join(parts) or "the node its DaemonSet made it for"


def _describe(expression: NodeSelectorRequirement) -> str:
    match expression.operator:
        case "Exists":
            return expression.key
        case "DoesNotExist":
            return f"!{expression.key}"
        case operator:
            return f"{expression.key} {operator} ({', '.join(expression.values)})"


def _nodes_with_affinity(table: NodeTable, node_selector: Labels, node_affinity: NodeSelector | None) -> NodeSet:
    nodes = table.every
    for key, value in node_selector.items():
        nodes &= table.column(key).nodes_with.get(value, 0)
    if node_affinity is not None:
        nodes &= _nodes_selected(table, node_affinity, with_fields=True)
    return nodes


def _nodes_selected(table: NodeTable, selector: NodeSelector, *, with_fields: bool) -> NodeSet:
    nodes = 0
    for term in selector.node_selector_terms:
        if not (term.match_expressions or term.match_fields) or not _is_valid_term(term):
            continue
        chosen = table.every
        for expression in term.match_expressions:
            chosen &= _nodes_expressed(table, expression)
        for field in term.match_fields if with_fields else ():
            chosen &= _nodes_named(table, field)
        nodes |= chosen
    return nodes


def _nodes_expressed(table: NodeTable, expression: NodeSelectorRequirement) -> NodeSet:
    column = table.column(expression.key)
    match expression.operator:
        case "Exists":
            return column.present
        case "DoesNotExist":
            return table.every & ~column.present
        case "In":
            return union(column.nodes_with.get(value, 0) for value in expression.values)
        case "NotIn":
            return table.every & ~union(column.nodes_with.get(value, 0) for value in expression.values)
        case _:
            holds = _value_test(expression)
            return union(having for value, having in column.nodes_with.items() if holds(value))


def _nodes_named(table: NodeTable, field: NodeSelectorRequirement) -> NodeSet:
    if field.key != NAME_FIELD:
        return table.every if _matches_field(field, "") else 0
    named = table.named(field.values)
    return named if field.operator == "In" else table.every & ~named
