"""The small clusters of bench/compare as values: zones, workloads, and the node of each pod at the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

MILLI_PER_CPU: Final = 1000
Placement = dict[str, int]
"""The number of pods of a workload on each node, by the node's name, including nodes without any."""


class Zone(NamedTuple):
    """The nodes of one zone, which are all equal."""

    nodes: int = 2
    cpu: int = 8
    cordoned: bool = False
    tainted: bool = False
    """Whether its nodes have a `NoSchedule` taint."""


class Constraint(NamedTuple):
    """A topology spread constraint that counts the pods of its workload."""

    over: Literal["zones", "hosts"] = "zones"
    max_skew: int = 1
    soft: bool = False
    """`ScheduleAnyway` instead of `DoNotSchedule`."""
    min_domains: int = 1
    honors_taints: bool = False
    """`nodeTaintsPolicy: Honor` instead of `Ignore`."""
    each_template: bool = False
    """Whether it counts the pods of each template separately (`matchLabelKeys: [pod-template-hash]`)."""


class Workload(NamedTuple):
    """A Deployment."""

    name: str
    pods: Mapping[str, Sequence[int]]
    """The number of its pods at the start on each node of each zone."""
    constraints: tuple[Constraint, ...] = (Constraint(),)
    milli_cpu: int = 100
    only_zones: str = ""
    """The zones that its required node affinity names, such as "ab"; empty without affinity."""
    tolerates: bool = False
    """Whether it tolerates the taint that zones may have."""
    one_a_node: bool = False
    """Whether it has required anti-affinity to itself over hostnames."""
    ready_seconds: float = 0
    max_unavailable: int | None = None
    """The maxUnavailable of its PodDisruptionBudget, if it has one; 0 allows no eviction."""
    changed: bool = False
    """Whether its template is changed just before a program starts, so that a rollout replaces all pods."""

    @property
    def soft(self) -> bool:
        """Whether none of its constraints blocks a rollout."""
        return all(each.soft for each in self.constraints)

    @property
    def replicas(self) -> int:
        """The number of its pods."""
        return sum(map(sum, self.pods.values()))


class World(NamedTuple):
    """One cluster."""

    name: str
    about: str
    """The difficulty, as a sentence for the page."""
    workloads: tuple[Workload, ...]
    zones: Mapping[str, Zone] = {"a": Zone(), "b": Zone(), "c": Zone()}
    outage: str = ""
    """A zone that is cordoned during the rollouts, and comes back when those that nothing blocks are over; empty for
    none."""

    def is_replacing(self, workload: Workload) -> bool:
        """Return whether a rollout replaces the pods of a workload when a program starts."""
        return workload.changed and not (self.outage and workload.soft)

    @property
    def soft(self) -> bool:
        """Whether a constraint is soft, so that the programs restore such constraints."""
        return any(each.soft for workload in self.workloads for each in workload.constraints)

    def zone_of(self) -> dict[str, str]:
        """Return the zone of each node."""
        return {node_name(zone, at): zone for zone, shape in self.zones.items() for at in range(shape.nodes)}

    def start(self, workload: Workload) -> Placement:
        """Return the nodes of a workload's pods at the start."""
        return {
            node_name(zone, at): dict(enumerate(workload.pods.get(zone, ()))).get(at, 0)
            for zone, shape in self.zones.items()
            for at in range(shape.nodes)
        }

    def constraints(self) -> Iterator[tuple[Workload, Constraint]]:
        """Yield each constraint with its workload."""
        return ((workload, each) for workload in self.workloads for each in workload.constraints)


def node_name(zone: str, at: int) -> str:
    """Return the name of a zone's node in the sandbox: node-a1 is the first node of zone-a."""
    return f"node-{zone}{at + 1}"
