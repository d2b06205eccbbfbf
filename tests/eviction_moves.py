"""Short ways to write moves."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from immutables import Map

from respread.cluster.pod import Pod, workload_of
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.journal import Journal
from respread.planning.plan import Move
from respread.spread.group import Eligibility, GroupKey
from tests.worlds import ZONE, pod, spec

SPEC = spec()


def group(name: str = "web") -> GroupKey:
    """Return a spread group of a namespace of that name."""
    return GroupKey(
        namespace=name,
        topology_key=ZONE,
        when_unsatisfiable="DoNotSchedule",
        max_skew=1,
        min_domains=1,
        selector=Selector((), (), ()),
        eligibility=Eligibility(required_keys=(ZONE,), node_affinity_policy="Honor", node_taints_policy="Ignore"),
    )


def move(victim: Pod | str, **fields: Any) -> Move:
    """Return a move of a pod, or of a pod of that name on node-1, in its own group."""
    evicted = pod(victim, "node-1", SPEC) if isinstance(victim, str) else victim
    given: dict[str, Any] = {
        "policy": "default",
        "workload": workload_of(evicted),
        "wave": 0,
        "component": crc32(evicted.uid.encode()),
        "groups": (group(evicted.name),),
        "from_domains": ("zone-a",),
        "to_domains": (("zone-b",),),
        "nodes": 1,
        "certain": True,
        **fields,
    }
    return Move(pod=evicted, **given)


def send(journal: Journal, sent: Move, snapshot: ClusterSnapshot) -> None:
    """Choose, record and send a move."""
    journal.chosen((sent,), snapshot)
    journal.recorded(sent)
    journal.sent(sent, snapshot)


def labels(app: str) -> Map[str, str]:
    """Return the labels of an app's pods."""
    return Map(app=app)
