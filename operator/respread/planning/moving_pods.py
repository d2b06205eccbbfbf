"""The pods of moves in flight, as far as plans reckon with them: what is to come, and for which component."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.held import Held
from respread.planning.tasks import FiledPods, Task


class MovingPods(NamedTuple):
    """The pods of moves in flight."""

    uids: frozenset[str]
    """Those of the evicted pods, and of their replacements without a node."""
    coming: FiledPods
    """The replacements without a node, and the evicted pods whose replacements don't exist yet."""
    late: FiledPods
    """The evicted pods whose replacements should have a node by now."""

    @classmethod
    def of(
        cls,
        snapshot: ClusterSnapshot,
        in_flight: Iterable[Pod],
        unreplaced: Sequence[Pod],
        replacements: Sequence[Pod],
        late: Iterable[Pod],
    ) -> MovingPods:
        """Return them as `Planner.plan` is told of them."""
        going = frozenset(pod.uid for pod in (*in_flight, *unreplaced, *replacements))
        looking = (pod for pod in replacements if not pod.spec.has_scheduling_gates)
        return cls(going, FiledPods.of((*unreplaced, *looking), snapshot), FiledPods.of(late, snapshot))

    def why_late(self, task: Task) -> Held | None:
        """Return that a replacement of a component should have a node by now and has none; None if none is late."""
        if not (pods := task.of(self.late)):
            return None
        return Held(
            Reason.IN_MOTION,
            f"the replacement of {pods[0].name}, which was evicted, has no node yet, and should have one by now: it is "
            "left alone until then",
        )

    def besides(self, tasks: Iterable[Task]) -> list[Pod]:
        """Return what is to come for others than some components."""
        theirs = {pod.uid for task in tasks for pod in task.coming}
        return [pod for pod in self.coming if pod.uid not in theirs]


class BegunTasks:
    """Components with what is to come for them. One for which nothing has changed is the same object."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Task, Task]] = {}
        """By the identity of the component without it, which is kept alive."""

    def of(self, tasks: Iterable[Task], moving: MovingPods) -> list[Task]:
        """Return components, each with what is to come for it, and forget all others."""
        if not moving.coming:
            self._known = {}
            return list(tasks)
        self._known = dict(self._with(tasks, moving))
        return [task for _, task in self._known.values()]

    def _with(self, tasks: Iterable[Task], moving: MovingPods) -> Iterator[tuple[int, tuple[Task, Task]]]:
        for task in tasks:
            coming = tuple(task.of(moving.coming))
            known = self._known.get(id(task))
            if known is None or known[1].coming != coming:
                known = task, msgspec.structs.replace(task, coming=coming) if coming else task
            yield id(task), known
