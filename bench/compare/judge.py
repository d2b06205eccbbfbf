"""The judge of bench/compare: each constraint of a small cluster's workloads, by the nodes of their pods."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from bench.compare.spread import holds
from bench.compare.world import Constraint, World
from bench.judge import Judge, key_of
from respread_sandbox import SandboxApi
from respread_sandbox.pod_watch import WatchedPod

_TEMPLATE: Final = "pod-template-hash"


class WorldJudge(Judge):
    """Knows the workloads of a cluster."""

    def __init__(self, api: SandboxApi, world: World) -> None:
        """Start watching."""
        self._world = world
        super().__init__(api)

    def violated(self) -> list[tuple[str, Constraint]]:
        """Return each violated constraint with the name of its workload."""
        pods = defaultdict[str, list[WatchedPod]](list)
        for pod in self.staying():
            pods[key_of(pod)[1]].append(pod)
        return [
            (workload.name, constraint)
            for workload, constraint in self._world.constraints()
            if not all(
                holds(self._world, workload, constraint, counts)
                for counts in _placements(pods[workload.name], each_template=constraint.each_template)
            )
        ]

    def is_as_declared(self) -> bool:
        """Return whether each workload's pods are Ready on the nodes of the world's start."""
        found = Counter((key_of(pod)[1], pod.spec.node_name) for pod in self.staying())
        wanted = Counter(
            {
                (each.name, node): pods
                for each in self._world.workloads
                for node, pods in self._world.start(each).items()
            }
        )
        return self.all_ready() and found == wanted


def _placements(pods: list[WatchedPod], *, each_template: bool) -> list[Counter[str]]:
    """Return how many pods are on each node, for each template if these are counted separately."""
    counts = defaultdict[str, Counter[str]](Counter)
    for pod in pods:
        counts[pod.metadata.labels.get(_TEMPLATE, "") if each_template else ""][pod.spec.node_name] += 1
    return list(counts.values())
