"""Pods in motion: those of moves in flight, with what is to come for which component, and those of lost nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.tasks import FiledPods, Task
from respread.planning.victims.protection import why_not_replaced
from respread.spread.group import GroupKey

OnHold: TypeAlias = Callable[[GroupKey, str], Held | None]
"""Takes a violated group and the name of the policy that selects it. Returns why the group is left alone for now, for
example because it changed less than a quiet period ago; None if it is not."""

EVERYWHERE = ""
"""Stands for all namespaces."""


def never_on_hold(_key: GroupKey, _policy: str) -> None:
    """Hold no group."""


def uncounted(snapshot: ClusterSnapshot) -> Mapping[str, Held]:
    """Return why groups are left alone because they may count an object that can't be decoded, by namespace.

    The groups of a pod's namespace may count the pod, and a node may be a domain of any group.
    """
    found: dict[str, Held] = {}
    for resource in ("pods", "nodes"):
        for key, each in snapshot.unread.get(resource, Map()).items():
            if not each.labels_read and key.namespace not in found:
                found[key.namespace] = Held(
                    Reason.UNREAD_OBJECT,
                    f"it is not known whether its constraint counts an object that can't be read: {each.fault}",
                )
    return found


def why_uncounted(found: Mapping[str, Held], namespace: str) -> Held | None:
    """Return why the groups of a namespace are left alone, or None."""
    return found.get(EVERYWHERE) or found.get(namespace)


class UnderWay(NamedTuple):
    """What moves mean for planning that were chosen or made, and whose replacements are not Ready."""

    in_flight: tuple[Pod, ...] = ()
    """The pods of moves as the watch shows them, and gone ones as terminating: for a `BudgetBook`."""
    unreplaced: tuple[Pod, ...] = ()
    """Pods whose replacements will exist, or exist and have scheduling gates. Each of these needs a place."""
    replacements: tuple[Pod, ...] = ()
    """The replacements that exist and have no node yet, with and without scheduling gates."""
    late: tuple[Pod, ...] = ()
    """Pods whose replacements should have a node by now. Their groups are left alone."""
    of_policies: Mapping[str, int] = Map()
    """The number of moves of each policy that has some, by its name."""


NOTHING_UNDER_WAY: Final = UnderWay()


class MovingPods(NamedTuple):
    """The pods of moves in flight."""

    uids: frozenset[str]
    """Those of the evicted pods, and of their replacements without a node."""
    coming: FiledPods
    """The replacements without a node, and the evicted pods whose replacements don't exist yet."""
    late: FiledPods
    """The evicted pods whose replacements should have a node by now."""

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, moves: UnderWay) -> MovingPods:
        """Return them for a snapshot."""
        going = frozenset(pod.uid for pod in (*moves.in_flight, *moves.unreplaced, *moves.replacements))
        looking = (pod for pod in moves.replacements if not pod.spec.has_scheduling_gates)
        return cls(going, FiledPods.of((*moves.unreplaced, *looking), snapshot), FiledPods.of(moves.late, snapshot))

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


class Parted(NamedTuple):
    """Tasks, by what is to be done with them now."""

    ready: list[Task]
    """Those to be solved, with what is to come for them."""
    moving: list[Task]
    """Those that are left alone, and for which room is kept."""
    blocked: list[tuple[GroupKey, Held]]
    """The groups that are left alone for now, and why."""


class Motion:
    """What is in motion in one snapshot after the other."""

    def __init__(self) -> None:
        self._lost_nodes: frozenset[str] = frozenset()
        """Nodes that don't exist and have pods."""
        self._snapshot = ClusterSnapshot()
        self.moving = MovingPods.of(self._snapshot, NOTHING_UNDER_WAY)
        self.lost: tuple[Pod, ...] = ()
        """The pods whose node no longer exists, and that will be replaced on another one, except terminating ones.

        The pod garbage collector of Kubernetes deletes them about a minute after their node, and only then do their
        controllers create others. Until then, the scheduler counts them in no domain, and no Pending pod shows that
        they need room.
        """

    def advance(self, snapshot: ClusterSnapshot, changed: Iterable[str], under_way: UnderWay) -> None:
        """Look at another snapshot.

        `changed` has the names of all nodes that came or went since the last one, or whose pods changed.
        """
        self._snapshot = snapshot
        self.moving = MovingPods.of(snapshot, under_way)
        by_node = snapshot.pods_by_node
        self._lost_nodes = frozenset(
            name for name in (*self._lost_nodes, *changed) if name in by_node and name not in snapshot.nodes
        )
        unread = {key.name for key in snapshot.unread.get("nodes", Map())} if self._lost_nodes else set()
        self.lost = tuple(
            pod
            for name in sorted(self._lost_nodes - unread)
            for _, pod in sorted(by_node[name].items())
            if not pod.terminating and why_not_replaced(pod) is None
        )

    def part(self, tasks: Iterable[Task], on_hold: OnHold, begun: AbstractSet[GroupKey]) -> Parted:
        """Return which tasks are to be solved, for which room is kept, and which groups are left alone for now."""
        parted = Parted([], [], [])
        moves, lost = self.moving, FiledPods.of(self.lost, self._snapshot)
        unread = uncounted(self._snapshot)
        for task in tasks:
            reasons = (on_hold(key, policy) for key, policy in task.cure.items())
            in_motion = task.in_motion(moves.uids) or moves.why_late(task) or _losing(task, lost)
            held = why_uncounted(unread, task.namespace) or next(
                (reason for reason in reasons if reason is not None), in_motion
            )
            if held is None:
                coming = tuple(task.of(moves.coming))
                parted.ready.append(msgspec.structs.replace(task, coming=coming) if coming else task)
                continue
            is_unfinished = in_motion is not None or not begun.isdisjoint(task.cure) or task.of(moves.coming)
            if held is in_motion or (is_unfinished and held.reason is Reason.QUIET_PERIOD):
                parted.moving.append(task)
            parted.blocked.extend((key, held) for key in task.cure)
        return parted


def _losing(task: Task, lost: FiledPods) -> Held | None:
    """Return a reason if pods of a task are on nodes that no longer exist."""
    if not (pods := task.of(lost)):
        return None
    return Held(
        Reason.IN_MOTION,
        f"node {pods[0].node_name} of {pods[0].name} no longer exists: it is left alone until Kubernetes has deleted "
        "the pod and its replacement is placed",
    )
