"""Why nodes don't count for a spread group, with the details that a user needs to change that."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from respread.cluster.node import Node
from respread.scheduling.filters.node_affinity import describe_affinity, matches_node_affinity
from respread.scheduling.filters.taint_toleration import untolerated_taint
from respread.spread.domains import Eligibility
from respread.spread.group import SpreadGroup


class IneligibleNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that don't count for the same reason."""

    domain: str | None
    """Their value of the topology key; None without the label."""
    why: str
    nodes: tuple[str, ...]
    """Their names, sorted; never empty."""


def ineligible_nodes(group: SpreadGroup, nodes: Iterable[Node]) -> list[IneligibleNodes]:
    """Return the nodes that don't count for a group, grouped by reason."""
    alike: dict[tuple[str | None, str], list[str]] = {}
    key = group.key
    for node in nodes:
        if (why := why_ineligible(key.eligibility, key.topology_key, node)) is not None:
            alike.setdefault((node.labels.get(key.topology_key), why), []).append(node.name)
    return [
        IneligibleNodes(domain=domain, why=why, nodes=tuple(sorted(names)))
        for (domain, why), names in sorted(alike.items(), key=lambda each: (each[0][0] or "", each[0][1]))
    ]


def why_ineligible(eligibility: Eligibility, topology_key: str, node: Node) -> str | None:
    """Return why a node belongs to no domain of a topology key, such as `has no label rack`; None if it does."""
    for key in (topology_key, *eligibility.required_keys):
        if key not in node.labels:
            return f"has no label {key}"
    if not matches_node_affinity(eligibility.node_selector, eligibility.node_affinity, node):
        return f"does not satisfy {describe_affinity(eligibility.node_selector, eligibility.node_affinity)}"
    if eligibility.node_taints_policy == "Honor":
        taint = untolerated_taint(eligibility.tolerations, node.taints)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            return f"has the taint {taint.key}{value}:{taint.effect}, and nodeTaintsPolicy is Honor"
    return None
