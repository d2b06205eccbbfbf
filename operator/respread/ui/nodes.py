"""The nodes that a simulation can drain, cordon or copy."""

from __future__ import annotations

import msgspec

from respread.cli.read.planned import Planned


class NodeChoice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node that can be drained, cordoned or copied in a simulation."""

    name: str
    domains: dict[str, str]
    ready: bool
    cordoned: bool
    pods: int


def node_choices(planned: Planned) -> tuple[NodeChoice, ...]:
    """Return all nodes, sorted by name."""
    snapshot = planned.view.snapshot
    keys = sorted({group.key.topology_key for group in planned.spread.groups.values()})
    return tuple(
        NodeChoice(
            name=name,
            domains={key: node.labels[key] for key in keys if key in node.labels},
            ready=node.ready,
            cordoned=node.unschedulable,
            pods=len(snapshot.pods_by_node.get(name, {})),
        )
        for name, node in sorted(snapshot.nodes.items())
    )
