"""The operator's parts in a loop on clusters with little room: moves in flight, planning, pacing, and a slow scheduler.

Time passes in ticks. Pods take up to 30 ticks to terminate. Replacements are created late, and those of a StatefulSet
only after the old pod is deleted. The scheduler binds pods in any order, chooses any feasible host, and preempts. The
watched state is always current. The scheduler is `scheduler_model` with `undisturbed`, without code of the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Final, NamedTuple

import msgspec

from respread.api.policy import ClusterPolicySpec, Policy, VictimRules
from respread.api.reasons import Held
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.controller.rest_of_plan import RestOfPlan
from respread.eviction.limiter import Limiter
from respread.eviction.pacing import Pace, Paced
from respread.holds.backoff import BackOffs
from respread.moves.entry import Outcome
from respread.moves.following import compared
from respread.moves.ledger import Ledger
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread, SpreadIndex
from respread.timing import ClockReading
from tests.properties.planning.scheduler_model import Position, SchedulerModel
from tests.properties.planning.small_worlds import HOSTNAME, NOW, Place, World, snapshot_of
from tests.properties.planning.tight_worlds import TightWorld
from tests.properties.planning.undisturbed import NOWHERE, Scene, ends_of, feasible, preemptable
from tests.unit.controller.observations import observation

MOST_TICKS: Final = 2_000
_LOOKS: Final = 0.8
"""The probability that the operator reconciles in a tick."""
STILL_TICKS: Final = 3
"""The loop ends after this many ticks without work."""


class Ended(NamedTuple):
    """The end of a loop."""

    evictions: int
    excess: int
    """The remaining excess of the constraints."""
    violated: int
    """How many constraints have excess left."""
    preemptions: int
    pending: int
    compared: bool
    """Whether the cluster was small enough to know which pods would be Pending without evictions."""
    ticks: int
    room: tuple[int, ...]
    """The room that foreign pods leave on each host at the end."""


class LeftPendingError(AssertionError):
    """Pods wait for a node that would have one without the evictions."""


class EndlessError(AssertionError):
    """The loop did not end within `MOST_TICKS` ticks."""


class _Mover:
    """All other components: controllers, kubelets and the scheduler."""

    def __init__(self, tight: TightWorld, random: Random) -> None:
        self.model = SchedulerModel(tight.world)
        self._tight = tight
        self._random = random
        self._numbers = count()
        self.state = ClusterState(snapshot_of(tight.world))
        self._specs = [_spec_of(tight, shape) for shape in range(len(tight.world.shapes))]
        self._hosts = {host.labels[HOSTNAME]: at for at, host in enumerate(tight.world.hosts)}
        self._shape_of: dict[str, int] = {}
        self._gone_at: dict[str, int] = {}
        self._late_by: dict[str, int] = {}
        self._to_create: list[tuple[int, int, str]] = []
        """The time, the shape and the name."""
        self.preemptions = 0
        begun = list(self.state.snapshot.pods.values())
        self.state.replace("pods", [])
        for pod, place in zip(sorted(begun, key=lambda pod: pod.name), tight.world.pods, strict=True):
            self._add(place.shape, f"shape{place.shape}-{pod.name}", pod.node_name)

    # The state of the pods

    @property
    def pods(self) -> list[Pod]:
        return sorted(self.state.snapshot.pods.values(), key=lambda pod: pod.name)

    @property
    def waiting(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.node_name]

    def shape(self, pod: Pod) -> int:
        return self._shape_of[pod.uid]

    def position(self) -> Position:
        staying = [[0] * len(self._hosts) for _ in self._tight.world.shapes]
        for pod in self.pods:
            if pod.node_name and not pod.terminating:
                staying[self.shape(pod)][self._hosts[pod.node_name]] += 1
        return Position(tuple((0,) * len(self._hosts) for _ in staying), tuple(map(tuple, staying)))

    def scene(self) -> Scene:
        going = ((self.shape(pod), self._hosts[pod.node_name]) for pod in self.pods if pod.terminating)
        return Scene(self.position(), tuple(sorted(map(self._who, self.waiting))), tuple(sorted(going)))

    def _who(self, pod: Pod) -> tuple[int, int]:
        return self.shape(pod), self._hosts.get(pod.nominated_node_name, NOWHERE)

    # Changes of the pods

    def add_foreign(self, shapes: Iterable[int]) -> None:
        for shape in shapes:
            self._create(shape, "")

    def evict(self, pod: Pod, now: int, *, late: bool) -> None:
        """Make a pod terminate. A ReplicaSet replaces it at once, a StatefulSet after its deletion.

        Args:
            pod: the pod.
            now: the tick.
            late: whether its controller creates the replacement late. Only for the operator's own moves, because it
                follows no others.
        """
        current = self.state.snapshot.pods[pod.key]
        assert current.uid == pod.uid
        assert not current.terminating
        self._put(msgspec.structs.replace(current, deletion_timestamp=NOW))
        self._gone_at[pod.uid] = now + self._random.randint(0, self._tight.most_ticks)
        self._late_by[pod.uid] = self._random.choice((0, 0, 1, 3)) if late else 0
        if self.shape(pod) not in self._tight.stateful:
            self._replace(pod, now, "")

    def _replace(self, pod: Pod, now: int, name: str) -> None:
        if late_by := self._late_by[pod.uid]:
            self._to_create.append((now + late_by, self.shape(pod), name))
        else:
            self._create(self.shape(pod), name)

    def tick(self, now: int) -> bool:
        """Advance by one tick, and return whether anything will still happen without the operator."""
        for pod in self.pods:
            if pod.terminating and self._gone_at[pod.uid] <= now:
                self.state.apply("pods", [(pod.key, None)])
                if self.shape(pod) in self._tight.stateful:
                    self._replace(pod, now, pod.name)
        due = [each for each in self._to_create if each[0] <= now]
        self._to_create = [each for each in self._to_create if each[0] > now]
        for _, shape, name in due:
            self._create(shape, name)
        for pod in self.pods:
            if pod.node_name and not pod.ready and self._random.random() < 0.7:
                self._put(msgspec.structs.replace(pod, ready=True, phase="Running"))
        scheduled = False
        for pod in self._random.sample(self.waiting, len(self.waiting)):
            if self._random.random() < 0.6:
                scheduled = self._schedule(pod, now) or scheduled
        busy = any(pod.terminating or (pod.node_name and not pod.ready) for pod in self.pods)
        return scheduled or busy or bool(self._to_create) or any(map(self._can_be_scheduled, self.waiting))

    def _create(self, shape: int, name: str) -> None:
        self._add(shape, name or f"shape{shape}-new{next(self._numbers)}", "")

    def _add(self, shape: int, name: str, node: str) -> None:
        uid = f"{name}-{next(self._numbers)}"
        self._shape_of[uid] = shape
        kind = "StatefulSet" if shape in self._tight.stateful else "ReplicaSet"
        self._put(
            Pod(
                namespace="default",
                name=name,
                uid=uid,
                spec=self._specs[shape].spec,
                labels=self._specs[shape].labels,
                controller=OwnerReference("apps/v1", kind, f"shape{shape}", f"uid-shape{shape}"),
                node_name=node,
                phase="Running" if node else "Pending",
                ready=bool(node),
                creation_timestamp=NOW - timedelta(hours=1) if node else NOW,
            )
        )

    def _put(self, pod: Pod) -> None:
        self.state.apply("pods", [(pod.key, pod)])

    # The scheduler

    def _can_be_scheduled(self, pod: Pod) -> bool:
        scene, who = self.scene(), self._who(pod)
        return bool(feasible(self.model, scene, who) or preemptable(self.model, scene, who))

    def _schedule(self, pod: Pod, now: int) -> bool:
        scene, who, names = self.scene(), self._who(pod), list(self._hosts)
        if hosts := feasible(self.model, scene, who):
            name = names[self._random.choice(hosts)]
            self._put(msgspec.structs.replace(pod, node_name=name, nominated_node_name=""))
            return True
        if not (candidates := preemptable(self.model, scene, who)):
            return False
        host, shapes = self._random.choice(candidates)
        left = Counter(shapes)
        for other in self.pods:
            if other.node_name == names[host] and not other.terminating and left[self.shape(other)]:
                left[self.shape(other)] -= 1
                self.preemptions += 1
                self.evict(other, now, late=False)
        for other in self.waiting:  # pods that lose their nomination need another host
            if other.nominated_node_name == names[host] and other.spec.priority < pod.spec.priority:
                self._put(msgspec.structs.replace(other, nominated_node_name=""))
        self._put(msgspec.structs.replace(pod, nominated_node_name=names[host]))
        return True


class _Operator:
    """The operator's work in a tick, with its own parts."""

    def __init__(self, tight: TightWorld) -> None:
        spec = ClusterPolicySpec(mode="Enforce", limits=tight.limits, victims=VictimRules(min_age=timedelta()))
        policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=spec)
        self._setting = PolicySetting((policy,))
        self._limiters = (Limiter.of(policy),)
        self._planner = Planner()
        self._index = SpreadIndex()
        self.in_flight = Ledger()
        self._back_offs = BackOffs()
        self._rest: RestOfPlan | None = None
        self.evictions = 0

    def tick(self, mover: _Mover, now: int) -> bool:
        """Observe the cluster and evict, and return whether anything was done or is in flight."""
        snapshot = mover.state.snapshot
        spread = self._index.update(snapshot)
        self.in_flight, ended = self.in_flight.updated(snapshot, now, partial(compared, spread))
        for each in ended:
            self._learn(each.move.groups, each.outcome, spread)
        moment = ClockReading(now, NOW.timestamp() + now)
        observed = observation(snapshot, spread=spread, setting=self._setting, ledger=self.in_flight, moment=moment)

        def on_hold(key: GroupKey, _: str) -> Held | None:
            return self._held(spread.groups[key])

        rest = None if self._rest is None else self._rest.at(observed, on_hold)
        paced = None if rest is None else self._paced(rest, snapshot, now)
        if paced is None or not paced.now:
            overlaid = self.in_flight.overlay(snapshot)
            plan = self._planner.plan(
                overlaid,
                self._index.update(overlaid),
                self._setting,
                now=NOW + timedelta(seconds=now),
                on_hold=on_hold,
                under_way=self.in_flight.for_planning(snapshot, now),
            )
            self._rest, paced = RestOfPlan(plan, observed, Counter()), self._paced(plan, snapshot, now)
        for move in (moves := paced.now):
            self.in_flight = self.in_flight.sent(move, snapshot, now, now)
            self.in_flight = self.in_flight.answered(move, True, now)
            mover.evict(move.pod, now, late=True)
            self.evictions += 1
        return bool(moves) or bool(len(self.in_flight))

    def _paced(self, plan: Plan, snapshot: ClusterSnapshot, now: int) -> Paced:
        pace = Pace(snapshot=snapshot, limiters=self._limiters, in_flight=self.in_flight.moves, now=float(now))
        return pace.of(plan.moves)

    def _held(self, group: SpreadGroup) -> Held | None:
        return self._back_offs.held(str(group.key), _situation(group), 0.0)

    def _learn(self, groups: Iterable[GroupKey], outcome: Outcome, spread: Spread) -> None:
        for key in groups:
            if (group := spread.groups.get(key)) is None:
                continue
            if outcome is Outcome.IMPROVED:
                self._back_offs = self._back_offs.improved(str(key))
            else:
                self._back_offs = self._back_offs.failed(str(key), _situation(group), 0.0)


def run(tight: TightWorld, seed: int) -> Ended:
    """Run a cluster until nothing is left to do.

    Raises:
        LeftPendingError: pods wait for a node in the end that would not wait without the evictions.
        EndlessError: it does not end.
    """
    random = Random(seed)
    mover, operator = _Mover(tight, random), _Operator(tight)
    epochs = list(tight.foreign)
    compared = True
    mover.add_foreign(epochs.pop(0))
    evictions, ends = 0, ends_of(mover.model, mover.scene(), tight.stateful)
    still = 0
    for now in range(MOST_TICKS):
        busy = operator.tick(mover, now) if random.random() < _LOOKS else True
        busy = mover.tick(now) or busy
        still = 0 if busy else still + 1
        if still < STILL_TICKS:
            continue
        left = Counter(map(mover.shape, mover.waiting))
        if ends is None:
            compared = compared and operator.evictions == evictions
        elif operator.evictions > evictions and not any(left <= end for end in ends):
            raise LeftPendingError(f"left: {left}; without evictions one of {ends}")
        if not epochs:
            position = mover.position()
            return Ended(
                evictions=operator.evictions,
                excess=sum(excesses := mover.model.excesses(position)),
                violated=sum(excess > 0 for excess in excesses),
                preemptions=mover.preemptions,
                pending=len(mover.waiting),
                compared=compared,
                ticks=now,
                room=_left_by_foreign(tight, position),
            )
        still = 0
        mover.add_foreign(epochs.pop(0))
        evictions, ends = operator.evictions, ends_of(mover.model, mover.scene(), tight.stateful)
    raise EndlessError


def _left_by_foreign(tight: TightWorld, position: Position) -> tuple[int, ...]:
    return tuple(
        host.room
        - sum(
            tight.world.shapes[shape].size * position.staying[shape][at]
            for shape in range(tight.applications, len(tight.world.shapes))
        )
        for at, host in enumerate(tight.world.hosts)
    )


def _spec_of(tight: TightWorld, shape: int) -> Pod:
    """Return a pod of a shape, for the values that pods of one template share."""
    world = World(hosts=tight.world.hosts, shapes=tight.world.shapes, pods=(Place(shape, 0),))
    (pod,) = snapshot_of(world).pods.values()
    return pod


def _situation(group: SpreadGroup) -> str:
    return str(sorted(group.counts.items()))
