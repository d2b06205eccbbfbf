"""The board of the search for a small cluster, with the spots of its pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from hypothesis import assume

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.planning.placement import Placement
from respread.planning.search.board import Board, Spot
from respread.planning.search.board_builder import set_up
from respread.planning.tasks import Task
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.node_table import NodeSet
from respread.spread.group import SpreadGroup, template_of
from tests.properties.planning.scheduler_model import Kind, Position, SchedulerModel
from tests.properties.planning.small_worlds import HOSTNAME, World, snapshot_of
from tests.spreads import spread_of


class Case(NamedTuple):
    """A world on a board and in the model, whose kinds of pods are the spots of the board."""

    world: World
    model: SchedulerModel
    start: Position
    board: Board
    spot_of: dict[Kind, Spot]

    def kind_of(self, spot: Spot) -> Kind:
        """Return the shape and host of the pods of a spot."""
        return next(kind for kind, each in self.spot_of.items() if each == spot)

    def place_of(self, spot: Spot) -> Kind:
        """Return the shape and host of a replacement."""
        shape = next(kind[0] for kind, each in self.spot_of.items() if each.piece == spot.piece)
        return shape, self.hosts(1 << spot.slot)[0]

    def hosts(self, nodes: NodeSet) -> list[int]:
        """Return the numbers of nodes."""
        names = set(self.board.placement.names(nodes))
        return [at for at, host in enumerate(self.world.hosts) if host.labels[HOSTNAME] in names]


def case_of(world: World, waiting: Collection[int] = (), stateful: Collection[int] = ()) -> Case:
    """Return the case of a world in which something is to be restored.

    Args:
        world: the cluster.
        waiting: the pods that have no node yet.
        stateful: the shapes of pods of StatefulSets.
    """
    model = SchedulerModel(world)
    shown = world._replace(pods=tuple(pod for at, pod in enumerate(world.pods) if at not in waiting))
    start = SchedulerModel(shown).start()
    assume(model.to_restore(start))
    board, spots = board_of(world, waiting, stateful)
    spot_of = {(world.pods[at].shape, world.pods[at].host): spot for at, spot in spots.items()}
    assume(len(set(spot_of.values())) == len(spot_of))  # else, two of its shapes are one template
    return Case(world, model, start, board, spot_of)


def board_of(
    world: World, waiting: Collection[int] = (), stateful: Collection[int] = ()
) -> tuple[Board, Mapping[int, Spot]]:
    """Return a board on which some pods wait for a node, and the spot of each other pod.

    Args:
        world: the cluster.
        waiting: these pods.
        stateful: the shapes of pods of StatefulSets.
    """
    snapshot = snapshot_of(world, stateful)
    names = [f"{number:02}" for number in range(len(world.pods))]
    pods = {pod.name: pod for pod in sorted(snapshot.pods.values(), key=lambda pod: pod.name)}
    coming = tuple(pods.pop(names[at]) for at in waiting)
    shown = with_pods(snapshot, list(pods.values()))
    groups = tuple(sorted(spread_of(shown).groups.values(), key=lambda group: str(group.key)))
    restored = {group.key for group in groups if group.violated and _restores(world, group)}
    task = Task(
        groups=groups,
        cure=dict.fromkeys(restored, "default"),
        pods=tuple(pods.values()),
        victims=tuple(pod for at, name in enumerate(names) if world.pods[at].movable and (pod := pods.get(name))),
        protected=(),
        labels=frozenset(pod.labels for pod in pods.values()),
        waiting=(),
        returning=(),
        changes_at=None,
        coming=coming,
    )
    view = ClusterView()
    view.advance(shown)
    placement = Placement(Predictor(view))
    board = set_up((task,), placement, {"default": 0})
    spots = {
        at: Spot(piece, placement.table.slot_of[pod.node_name])
        for at, name in enumerate(names)
        if (pod := pods.get(name)) is not None
        for piece, each in enumerate(board.pieces)
        if each.template.identity == template_of(pod).identity
    }
    return board, spots


def with_pods(snapshot: ClusterSnapshot, pods: list[Pod]) -> ClusterSnapshot:
    """Return a snapshot with other pods."""
    state = ClusterState(snapshot)
    state.replace("pods", pods)
    return state.snapshot


def _restores(world: World, group: SpreadGroup) -> bool:
    hard = group.key.when_unsatisfiable == "DoNotSchedule"
    keys = world.restored_keys
    return (hard or world.restores_soft) and (not keys or group.key.topology_key in keys)
