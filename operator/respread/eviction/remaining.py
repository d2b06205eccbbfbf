"""How long the moves that are left take at the present limits, and which limit bounds that.

It is an estimate. Each limit is looked at on its own: as many of its moves as it has places for are in flight until
their replacements are Ready, as often in a row as that takes. The limit that takes longest bounds the policy. Not
foreseen are failures, closed windows, pauses, moves that have to wait for one another, shares of namespaces,
and `limits.perHourPerGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import ceil, fsum
from statistics import median_low
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.record import MAX_MOVES_IN_FLIGHT
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.eviction.limiter import Limiter
from respread.eviction.tallies import HOUR_SECONDS, Counted, Needed, replicas_of
from respread.planning.plan import Move
from respread.planning.victims.budgets import BudgetIndex
from respread.planning.victims.protection import is_ordered, siblings_of, why_not_replaced

LONGEST_START_SECONDS: Final = 3600
"""A pod that was not Ready for longer than this was Ready before."""
_ENOUGH: Final = 50
"""How many pods of a controller are asked how long they took to become Ready."""


class _Key(NamedTuple):
    policy: str
    workload: WorkloadName
    labels: Labels


def lots_of(
    snapshot: ClusterSnapshot,
    budgets: BudgetIndex,
    moves: Iterable[Move],
    in_flight: Iterable[Move],
    *,
    waiting: Iterable[Move] = (),
    later: Iterable[Needed] = (),
    measured: Callable[[WorkloadName], float | None] = lambda _: None,
) -> Iterator[Lot]:
    """Yield the moves that are left.

    The `moves` of a plan are made as soon as limits have room. Those `waiting` wait for something else, and others will
    be planned `later`. `measured` returns how long replacements of a workload took until they were Ready; if it is not
    known, that is taken from the pods that the workload has. The budgets are advanced to the snapshot.
    """
    budgets.advance(snapshot)
    under_way = tuple(in_flight)
    uids = {move.pod.uid for move in under_way}
    now, away, others = Counter[_Key](), Counter[_Key](), Counter[_Key]()
    examples: dict[_Key, Pod] = {}
    nodes: dict[_Key, Counter[str]] = {}
    for counts, which in ((now, moves), (away, under_way), (others, waiting)):
        for move in which:
            key = _Key(move.policy, move.workload, move.pod.labels)
            counts[key] += 1
            examples.setdefault(key, move.pod)
            nodes.setdefault(key, Counter())[move.pod.node_name] += 1
    for each in later:
        of_namespace = snapshot.pods_by_labels.get(each.namespace, Map())
        pods = chain.from_iterable(of_namespace.get(labels, Map()).values() for labels in each.matched)
        if (example := next((pod for pod in pods if why_not_replaced(pod) is None), None)) is not None:
            key = _Key(each.policy, workload_of(example), example.labels)
            others[key] += each.evictions
            examples.setdefault(key, example)
    for key, pod in examples.items():
        found = budgets.of(pod.namespace, pod.labels)
        budget = found[0] if len(found) == 1 else None  # With several, the API server evicts none of the pods.
        seconds = measured(key.workload)
        yield Lot(
            policy=key.policy,
            workload=key.workload,
            labels=key.labels,
            replicas=replicas_of(snapshot, pod, uids),
            is_ordered=is_ordered(snapshot, pod),
            budget="" if budget is None else budget.name,
            disruptions=0 if budget is None else max(0, budget.expected_pods - budget.desired_healthy),
            seconds=seconds_of_pods(snapshot, pod) if seconds is None else seconds,
            now=now[key],
            later=others[key],
            in_flight=away[key],
            nodes=nodes.get(key, {}),
        )


def seconds_of_pods(snapshot: ClusterSnapshot, pod: Pod) -> float | None:
    """Return how long the pods of a pod's controller took from creation until they were Ready; None if none tells.

    It is the median, and at least a second, because Kubernetes stores whole seconds.
    """
    times = (each.ready_seconds for each in siblings_of(snapshot, pod))
    found = list(islice((each for each in times if each is not None and each <= LONGEST_START_SECONDS), _ENOUGH))
    return float(max(1, median_low(found))) if found else None


BUDGET: Final = "PodDisruptionBudget"
ORDERED: Final = "OrderedReady"
_MINUTE: Final = 60
_HOUR: Final = 3600
_STEPS: Final = ((2 * _MINUTE, 10), (_HOUR, _MINUTE), (10 * _HOUR, 10 * _MINUTE))
"""Below so many seconds, an estimate is given in steps of so many; above the last, in hours."""


class Lot(msgspec.Struct, frozen=True, kw_only=True):
    """Moves of pods of one workload with the same labels, for one policy."""

    policy: str
    workload: WorkloadName
    labels: Labels
    replicas: int
    """The pods of the workload's controller."""
    is_ordered: bool = False
    """Whether that moves one pod at a time: a StatefulSet with OrderedReady."""
    budget: str = ""
    """The name of the PodDisruptionBudget that selects the pods; empty without one."""
    disruptions: int = 0
    """How many of its pods that budget allows to be away at once if all others are healthy."""
    seconds: float | None = None
    """How long a replacement takes from the eviction until it is Ready; None if that is not known."""
    now: int = 0
    """How many can be made as soon as limits have room."""
    later: int = 0
    """How many can't be made for the moment."""
    in_flight: int = 0
    nodes: Mapping[str, int] = {}
    """How many of these are of pods on each node, as far as that is known."""

    @property
    def left(self) -> int:
        """How many are left to be made."""
        return self.now + self.later

    @property
    def all(self) -> int:
        """How many are left or in flight: each takes a place until its replacement is Ready."""
        return self.left + self.in_flight


class Bound(NamedTuple):
    """How long moves take because of one limit."""

    seconds: float
    name: str
    """Of the limit, as in a policy's `spec.limits`, or `PodDisruptionBudget`."""
    value: int
    """How many moves it allows: at once, or within an hour."""
    whose: str = ""
    """Whose limit it is, if not the policy's own."""
    for_now: int | None = None
    """How many of them a workload may have until more replacements are Ready, if fewer."""

    def __str__(self) -> str:
        """Return the limit with its value."""
        for_now = "" if self.for_now is None else f" ({self.for_now} for now)"
        return f"{self.name} {self.value}{for_now}{f' of {self.whose}' if self.whose else ''}"


class Remaining(NamedTuple):
    """What is left to be done for a policy."""

    evictions: int = 0
    """How many evictions are left to be made."""
    in_flight: int = 0
    bound: Bound | None = None
    """The limit that takes longest, and how long that is. None if nothing is left, or if it is not known how long
    replacements take until they are Ready."""
    used: float | None = None
    """Of the moves that limits allow in flight at once, the share that is; None if none can be made now."""

    @property
    def seconds(self) -> float | None:
        """How long it takes until the last replacement is Ready; None if that is not known."""
        if not self.evictions and not self.in_flight:
            return 0.0
        return None if self.bound is None else self.bound.seconds

    @property
    def about_seconds(self) -> int | None:
        """The same, rounded up, so that it rarely changes: an estimate is no more exact."""
        return None if self.seconds is None else about(self.seconds)


NOTHING_LEFT: Final = Remaining()


def about(seconds: float) -> int:
    """Return an estimate of a time as people say it: 50 s, 12 min, 1 h 20 min or 14 h, in seconds, rounded up."""
    for below, step in (*_STEPS, (None, _HOUR)):
        found = ceil(seconds / step) * step
        if below is None or found < below:
            break
    return found


def in_words(seconds: int) -> str:
    """Return a time from `about` in words: `50 s`, `12 min`, `1 h 20 min`, `14 h`."""
    if seconds < 2 * _MINUTE:
        return f"{seconds} s"
    hours, minutes = divmod(seconds // _MINUTE, 60)
    return " ".join(part for part in (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "") if part)


def in_short(seconds: int) -> str:
    """Return the same as `kubectl get` shows times: `50s`, `12m`, `1h20m`, `14h`."""
    return in_words(seconds).replace(" min", "m").replace(" h", "h").replace(" s", "s").replace(" ", "")


class PresentLimits(Counted, frozen=True, kw_only=True):
    """The limits, and what was done so far."""

    waited: Mapping[WorkloadName, float] = {}
    """By workload, how long its oldest move in flight has taken, in seconds."""

    def remaining(self, lots: Iterable[Lot]) -> dict[str, Remaining]:
        """Return what is left for each policy that has moves, by name."""
        of_policies: dict[str, list[Lot]] = {}
        for lot in lots:
            if lot.all:
                of_policies.setdefault(lot.policy, []).append(lot)
        moves = [lot for of_policy in of_policies.values() for lot in of_policy]
        times = _Times(moves, self.waited)
        bounds: dict[str, list[Bound]] = {policy: [] for policy in of_policies}
        used: dict[str, float | None] = {}
        for limiter in self.limiters:
            if not (limiter.shared or limiter.policy in of_policies):
                continue
            bounded = moves if limiter.shared else of_policies[limiter.policy]
            bounded = [
                lot for lot in bounded if limiter.applies(lot.policy, lot.workload.namespace, lot.labels, self.snapshot)
            ]
            used[limiter.policy] = self._used(limiter, bounded)
            for bound, concerned in self._bounds(limiter, bounded, times):
                for policy in {lot.policy for lot in concerned}:
                    foreign = not bound.whose and policy != limiter.policy
                    bounds[policy].append(bound._replace(whose=f"policy {limiter.policy}") if foreign else bound)
        return {
            policy: Remaining(
                sum(lot.left for lot in of_policy),
                sum(lot.in_flight for lot in of_policy),
                max(bounds[policy], key=lambda bound: bound.seconds, default=None),
                used.get(policy),
            )
            for policy, of_policy in of_policies.items()
        }

    def _bounds(
        self, limiter: Limiter, lots: Collection[Lot], times: _Times
    ) -> Iterator[tuple[Bound, Collection[Lot]]]:
        """Yield how long moves take because of each limit of a policy, the narrowest first, and which these are."""
        limits = limiter.limits
        if limits.per_hour:
            beyond = sum(lot.left for lot in lots) - self._left_in_hour(limiter)
            if beyond > 0:
                yield Bound(self._opens_in(limiter, beyond, limits.per_hour), "perHour", limits.per_hour), lots
        if not times.known or not lots:
            return
        for of_workload in _by(lots, lambda lot: lot.workload):
            most = self._most(limiter, of_workload)
            seconds = times.of(of_workload, self._rounds(of_workload, most))
            for_now = self._trusted(of_workload, most)
            few = for_now if for_now < min(most, sum(lot.all for lot in of_workload)) else None
            ordered = of_workload[0].is_ordered
            name, whose = (ORDERED, str(of_workload[0].workload)) if ordered else ("inFlightPerWorkload", "")
            yield Bound(seconds, name, most, whose, few), of_workload
        for of_namespace in _by(lots, lambda lot: lot.workload.namespace):
            yield times.bound("inFlightPerNamespace", of_namespace, limits.in_flight_per_namespace), of_namespace
        if nodes := _nodes(lots):
            fullest = max(sorted(nodes), key=nodes.__getitem__)
            there = [lot for lot in lots if fullest in lot.nodes]
            seconds = times.of(there, ceil(nodes[fullest] / limits.in_flight_per_node))
            yield Bound(seconds, "inFlightPerNode", limits.in_flight_per_node), there
        yield times.bound("inFlight", lots, _in_all(limiter)), lots
        for of_budget in _by((lot for lot in lots if lot.disruptions), _budget):
            bound = times.bound(BUDGET, of_budget, of_budget[0].disruptions)
            yield bound._replace(whose="/".join(_budget(of_budget[0]))), of_budget

    def _most(self, limiter: Limiter, lots: Sequence[Lot]) -> int:
        """Return how many moves of a workload may be in flight at once."""
        most = limiter.limits.in_flight_of_workload(max(lot.replicas for lot in lots))
        return 1 if lots[0].is_ordered else most

    def _trusted(self, lots: Sequence[Lot], most: int, ready: int = 0) -> int:
        """Return how many of them may be, until more replacements than so many are Ready."""
        return most if self.trust is None else min(most, self.trust.most(lots[0].workload, self.now, ready))

    def _rounds(self, lots: Sequence[Lot], most: int) -> int:
        """Return how often in a row replacements of a workload are waited for."""
        rounds, made, number = 0, 0, sum(lot.all for lot in lots)
        while made < number and (trusted := self._trusted(lots, most, made)) < most:
            rounds, made = rounds + 1, made + trusted
        return rounds + ceil((number - made) / most)

    def _used(self, limiter: Limiter, lots: Collection[Lot]) -> float | None:
        """Return which share of the moves that limits and budgets allow in flight at once is."""
        if not any(lot.now for lot in lots):
            return None
        of_namespaces: Counter[str] = Counter()
        for of_budget in _by(lots, _budget):
            wanted = sum(
                min(self._trusted(each, self._most(limiter, each)), sum(lot.now + lot.in_flight for lot in each))
                for each in _by(of_budget, lambda lot: lot.workload)
            )
            lot = of_budget[0]
            of_namespaces[lot.workload.namespace] += min(lot.disruptions, wanted) if lot.budget else wanted
        limits = limiter.limits
        nodes = _nodes(lots)
        elsewhere = sum(lot.all for lot in lots) - nodes.total()
        most = min(
            _in_all(limiter),
            sum(min(limits.in_flight_per_namespace, number) for number in of_namespaces.values()),
            sum(min(limits.in_flight_per_node, number) for number in nodes.values()) + elsewhere,
        )
        in_flight = sum(lot.in_flight for lot in lots)
        if limits.per_hour is not None:
            most = min(most, in_flight + self._left_in_hour(limiter))
        return min(1.0, in_flight / most) if most else None

    def _opens_in(self, limiter: Limiter, beyond: int, per_hour: int) -> float:
        """Return in how many seconds the last of some evictions beyond `limits.perHour` may be made."""
        made = self.history.in_last_hour(limiter.policy, self.now)
        hours, earlier = divmod(beyond - 1, per_hour)
        earlier += max(0, sum(each.evictions for each in made) - per_hour)
        for each in made:
            if earlier < each.evictions:
                return hours * HOUR_SECONDS + each.last + HOUR_SECONDS - self.now
            earlier -= each.evictions
        return (hours + 1) * HOUR_SECONDS

    def _left_in_hour(self, limiter: Limiter) -> int:
        return max(0, (limiter.limits.per_hour or 0) - self.history.count_in_last_hour(limiter.policy, self.now))


class _Times:
    """How long replacements take to become Ready. Workloads of which that is not known take as long as the others.

    One that has taken longer than the others takes about as long again.
    """

    def __init__(self, lots: Iterable[Lot], waited: Mapping[WorkloadName, float]) -> None:
        self._waited = waited
        seconds = [(lot.seconds, lot.all) for lot in lots if lot.seconds is not None]
        self.known = bool(seconds)
        """Whether it is known of any workload."""
        self._mean = _mean(seconds) if seconds else 0.0

    def of(self, lots: Iterable[Lot], rounds: int) -> float:
        """Return how long so many rounds of moves take, in seconds: at least as long as the slowest replacement."""
        seconds = [(self._mean if lot.seconds is None else lot.seconds, lot.all) for lot in lots]
        waited = (self._waited.get(lot.workload, 0.0) for lot in lots)
        return max(rounds * _mean(seconds), *(each for each, _ in seconds), *waited)

    def bound(self, name: str, lots: Collection[Lot], most: int) -> Bound:
        """Return how long moves take of which so many may be in flight at once."""
        return Bound(self.of(lots, ceil(sum(lot.all for lot in lots) / most)), name, most)


def _mean(numbers: Collection[tuple[float, int]]) -> float:
    """Return the mean of values, each with how often it occurs."""
    return fsum(value * times for value, times in numbers) / sum(times for _, times in numbers)


def _in_all(limiter: Limiter) -> int:
    return min(limiter.limits.in_flight, MAX_MOVES_IN_FLIGHT)


def _budget(lot: Lot) -> tuple[str, str]:
    return lot.workload.namespace, lot.budget


def _nodes(lots: Iterable[Lot]) -> Counter[str]:
    """Return how many moves are of pods on each node."""
    nodes: Counter[str] = Counter()
    for lot in lots:
        nodes.update(lot.nodes)
    return nodes


def _by(lots: Iterable[Lot], key: Callable[[Lot], object]) -> list[list[Lot]]:
    """Return lots, those with the same key together."""
    found: dict[object, list[Lot]] = {}
    for lot in lots:
        found.setdefault(key(lot), []).append(lot)
    return list(found.values())
