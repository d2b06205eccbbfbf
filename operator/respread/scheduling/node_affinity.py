"""NodeAffinity: nodeSelector and required node affinity, both of which a node must satisfy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from respread.cluster.meta import Labels
from respread.cluster.node import Node
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from respread.cluster.selectors import SelectorError, requirement

NAME_FIELD: Final = "metadata.name"

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


def matches_node_affinity(node_selector: Labels, node_affinity: NodeSelector | None, node: Node) -> bool:
    """Tell whether a node satisfies a pod's nodeSelector and required node affinity (`RequiredNodeAffinity.Match`).

    Of the terms of the affinity one must hold, and in it everything; a term without requirements never holds.
    """
    labels = node.labels
    for key, value in node_selector.items():
        if labels.get(key) != value:
            return False
    return node_affinity is None or matches_node_selector(node_affinity, node.name, labels)


def matches_node_selector(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Tell whether some term of a node selector holds for a node."""
    return any(_matches_term(term, name, labels) for term in selector.node_selector_terms)


def is_valid_term(term: NodeSelectorTerm) -> bool:
    """Tell whether the scheduler can read a term: one with a requirement that it cannot holds for no node."""
    return all(map(_is_valid_expression, term.match_expressions)) and all(map(_is_valid_field, term.match_fields))


def integer_of(text: str) -> int | None:
    """Return the integer that `Gt` and `Lt` compare with: 64 bits and decimal, or none at all."""
    if _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if _INT64_MIN <= value <= _INT64_MAX else None


def value_test(expression: NodeSelectorRequirement) -> Callable[[str], bool]:
    """Return what an `In`, `NotIn`, `Gt` or `Lt` asks of a label's value, where the node has the label."""
    values = frozenset(expression.values)
    if expression.operator == "In":
        return values.__contains__
    if expression.operator == "NotIn":
        return lambda value: value not in values
    bound = integer_of(expression.values[0])
    if bound is None:
        return lambda _: False
    limit = bound
    if expression.operator == "Gt":
        return lambda value: (number := integer_of(value)) is not None and number > limit
    return lambda value: (number := integer_of(value)) is not None and number < limit


def _matches_term(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not (term.match_expressions or term.match_fields) or not is_valid_term(term):
        return False
    return all(_matches_expression(each, labels) for each in term.match_expressions) and all(
        matches_field(each, name) for each in term.match_fields
    )


def _matches_expression(expression: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    if value is None:
        return expression.operator in {"NotIn", "DoesNotExist"}
    if expression.operator == "Exists":
        return True
    return expression.operator != "DoesNotExist" and value_test(expression)(value)


def matches_field(expression: NodeSelectorRequirement, name: str) -> bool:
    """Tell whether a requirement of `matchFields` holds for the node of that name; other fields are empty."""
    value = name if expression.key == NAME_FIELD else ""
    return (value == expression.values[0]) == (expression.operator == "In")


@lru_cache(maxsize=4096)
def _is_valid_expression(expression: NodeSelectorRequirement) -> bool:
    try:
        match expression.operator:
            case "Gt" | "Lt":
                requirement(expression.key, "In", expression.values)
                return len(expression.values) == 1 and integer_of(expression.values[0]) is not None
            case operator:
                requirement(expression.key, operator, expression.values)
                return True
    except SelectorError:
        return False


def _is_valid_field(expression: NodeSelectorRequirement) -> bool:
    return expression.operator in {"In", "NotIn"} and len(expression.values) == 1
