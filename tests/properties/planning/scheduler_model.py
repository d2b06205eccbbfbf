"""The scheduler's rules and the definition of a safe step (docs/planning.md), written again for small clusters.

The model reads only the plain data of `small_worlds` and uses no code of the product, because an oracle must not share
the mistakes of the planner. It counts everything from scratch for every question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations_with_replacement
from math import floor, log
from typing import NamedTuple, TypeAlias, TypeVar

from tests.properties.planning.small_worlds import HOSTNAME, Host, Rule, Shape, World

_T = TypeVar("_T")

Kind: TypeAlias = tuple[int, int]
"""The pods of one shape on one host, which are equal."""
LARGEST_STEP = 3


class Position(NamedTuple):
    """The pods' hosts: a tuple of numbers by host for each shape."""

    movable: tuple[tuple[int, ...], ...]
    """Pods that may be evicted."""
    staying: tuple[tuple[int, ...], ...]
    """All others, including the replacements of evicted pods."""

    def evict(self, kind: Kind) -> Position:
        return Position(_changed(self.movable, kind, -1), self.staying)

    def place(self, kind: Kind) -> Position:
        return Position(self.movable, _changed(self.staying, kind, 1))


class Outcome(NamedTuple):
    """A possible end of a step."""

    position: Position
    likely: bool


class _Group(NamedTuple):
    identity: tuple[object, ...]
    """Equal for constraints that the product keeps as one group."""
    domain_of: tuple[str | None, ...]
    """The domain of each host; None for hosts that are not eligible."""
    domains: frozenset[str]
    counts: tuple[bool, ...]
    """Whether the pods of each shape are counted."""
    max_skew: int
    at_least_zero: bool
    """Whether the minimum is 0 because of too few domains."""
    hard: bool
    restored: bool


class SchedulerModel:
    """The rules of a cluster."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._hosts = range(len(world.hosts))
        self._shapes = range(len(world.shapes))
        self.groups: list[_Group] = []
        self._own: list[list[tuple[int, Rule]]] = []
        self._allowed = [[_allows(host, shape) for host in world.hosts] for shape in world.shapes]
        for shape in world.shapes:
            self._own.append([])
            for rule in shape.rules:
                group = self._group(shape, rule)
                if group not in self.groups:
                    self.groups.append(group)
                self._own[-1].append((self.groups.index(group), rule))

    def start(self) -> Position:
        movable = [[0] * len(self._hosts) for _ in self._shapes]
        staying = [[0] * len(self._hosts) for _ in self._shapes]
        for pod in self.world.pods:
            (movable if pod.movable else staying)[pod.shape][pod.host] += 1
        return Position(tuple(map(tuple, movable)), tuple(map(tuple, staying)))

    # The state of the constraints

    def counts(self, group: _Group, position: Position) -> dict[str, int]:
        counts = dict.fromkeys(group.domains, 0)
        for shape in self._shapes:
            if group.counts[shape]:
                for host in self._hosts:
                    if (domain := group.domain_of[host]) is not None:
                        counts[domain] += position.movable[shape][host] + position.staying[shape][host]
        return counts

    def minimum(self, group: _Group, counts: dict[str, int]) -> int:
        return 0 if group.at_least_zero else min(counts.values(), default=0)

    def excess(self, group: _Group, position: Position) -> int:
        counts = self.counts(group, position)
        limit = self.minimum(group, counts) + group.max_skew
        return sum(max(0, count - limit) for count in counts.values())

    def excesses(self, position: Position) -> tuple[int, ...]:
        return tuple(self.excess(group, position) for group in self.groups)

    def to_restore(self, position: Position) -> list[int]:
        """Return the groups that a plan must restore: of constraints that some pod has."""
        of_pods = {
            at
            for shape, own in enumerate(self._own)
            if any(position.movable[shape]) or any(position.staying[shape])
            for at, _ in own
        }
        return [
            at
            for at, group in enumerate(self.groups)
            if at in of_pods and group.restored and self.excess(group, position)
        ]

    # Where a pod may go

    def feasible(self, shape: int, position: Position, terminating: list[Kind]) -> list[int]:
        """Return the hosts that are feasible for one more pod of a shape.

        Args:
            shape: the shape of the pod.
            position: the positions of the pods that the constraints count.
            terminating: evicted pods that still use room.
        """
        return [
            host
            for host in self._hosts
            if self._allowed[shape][host]
            and self.free(host, position, terminating) >= self.world.shapes[shape].size
            and all(self._admits(at, shape, host, position) for at, rule in self._own[shape] if rule.hard)
            and self._is_near(shape, host, position, terminating)
            and self._is_apart(shape, host, position, terminating)
        ]

    def _is_apart(self, shape: int, host: int, position: Position, terminating: list[Kind]) -> bool:
        """Whether no pod on a host has anti-affinity to a shape, and the shape has none to it."""
        shapes = self.world.shapes
        return not any(
            (shapes[shape].is_apart or shapes[kind].is_apart)
            and shapes[kind].labels.get("app") == shapes[shape].labels.get("app")
            for kind in self._shapes
            if position.movable[kind][host] or position.staying[kind][host] or (kind, host) in terminating
        )

    def _is_near(self, shape: int, host: int, position: Position, terminating: list[Kind]) -> bool:
        """Whether the zone of a host satisfies the affinity of a shape. The first pod of a set may go anywhere."""
        wanted = self.world.shapes[shape]
        if not wanted.near:
            return True
        zones = {
            self.world.hosts[at].labels["zone"]
            for kind in self._shapes
            if self.world.shapes[kind].labels.get("app") == wanted.near
            for at in self._hosts
            if position.movable[kind][at] or position.staying[kind][at] or (kind, at) in terminating
        }
        if not zones and wanted.labels.get("app") == wanted.near:
            return True
        return self.world.hosts[host].labels["zone"] in zones

    def likeliest(self, shape: int, feasible: list[int], position: Position) -> list[int]:
        """Return the feasible hosts with the best score of a shape's ScheduleAnyway constraints."""
        soft = [(self.groups[at], rule) for at, rule in self._own[shape] if not rule.hard]
        if not soft or not feasible:
            return feasible
        ignored = {host for host in feasible if any(group.domain_of[host] is None for group, _ in soft)}
        raw = dict.fromkeys(feasible, 0.0)
        for group, rule in soft:
            counts = self.counts(group, position)
            known = [host for host in feasible if host not in ignored]
            domains = len(known) if rule.key == HOSTNAME else len({group.domain_of[host] for host in known})
            for host in known:
                raw[host] += counts[group.domain_of[host] or ""] * log(domains + 2) + rule.max_skew - 1
        scores = {host: floor(raw[host] + 0.5) for host in feasible if host not in ignored}
        if not scores:
            return feasible
        low, high = min(scores.values()), max(scores.values())
        final = {
            host: 0 if host in ignored else 100 * (high + low - scores[host]) // high if high else 100
            for host in feasible
        }
        best = max(final.values())
        return [host for host in feasible if final[host] == best]

    def may_leave(self, group: _Group, shape: int) -> bool:
        """Return whether a pod of a shape may land on a host that is not eligible for a group."""
        return any(self.allows(shape, host) for host in self._hosts if group.domain_of[host] is None)

    def group_of(self, shape: int, rule: int) -> int:
        """Return the number of the group of a shape's rule."""
        return self._own[shape][rule][0]

    def admits(self, shape: int, rule: int, host: int, position: Position) -> bool:
        """Return whether a shape's rule, if it is hard, lets one more pod of the shape onto a host."""
        return self._admits(self.group_of(shape, rule), shape, host, position)

    # Safe steps

    def kinds(self, position: Position) -> list[Kind]:
        return [(shape, host) for shape in self._shapes for host in self._hosts if position.movable[shape][host]]

    def safe_steps(
        self, position: Position, largest: int = LARGEST_STEP, kinds: Collection[Kind] | None = None
    ) -> Iterator[tuple[tuple[Kind, ...], set[Position]]]:
        """Yield every safe step, single ones first, with the likely final positions.

        Args:
            position: the position before the step.
            largest: the maximum number of pods of a step.
            kinds: the kinds that may be evicted; None for all.
        """
        safe: set[tuple[Kind, ...]] = set()
        listed = [kind for kind in self.kinds(position) if kinds is None or kind in kinds]
        for size in range(1, largest + 1):
            for step in combinations_with_replacement(listed, size):
                if any(step.count(kind) > position.movable[kind[0]][kind[1]] for kind in step):
                    continue
                if not safe.isdisjoint(_parts(step)):
                    continue
                outcomes = self.outcomes_if_safe(position, step)
                if outcomes is not None:
                    safe.add(step)
                    yield step, outcomes

    def placed(self, before: Position, after: Position) -> list[Kind]:
        """Return the pods that a step placed, by the positions before and after it."""
        return [
            (shape, host)
            for shape in self._shapes
            for host in self._hosts
            for _ in range(after.staying[shape][host] - before.staying[shape][host])
        ]

    def allows(self, shape: int, host: int) -> bool:
        """Return whether a host with room is allowed for a pod of a shape if its DoNotSchedule constraints count it."""
        return self._allowed[shape][host] and all(
            self.groups[at].domain_of[host] is not None for at, rule in self._own[shape] if rule.hard
        )

    def outcomes_if_safe(
        self, position: Position, step: tuple[Kind, ...], waiting: tuple[int, ...] = (), *, when_gone: bool = False
    ) -> set[Position] | None:
        """Return the likely final positions of a step, or None if it is not safe.

        Args:
            position: the position before the step.
            step: the pods that are evicted.
            waiting: the shapes of replacements that have no host yet, sorted.
            when_gone: whether a pod is replaced only when it is gone.
        """
        before = self.excesses(position)
        to_restore = self.to_restore(position)
        likely: set[Position] = set()
        seen: set[object] = set()
        for outcome in self._outcomes(position, step, waiting, seen, when_gone=when_gone):
            if outcome is None:
                return None
            after = self.excesses(outcome.position)
            worse = [at for at, group in enumerate(self.groups) if after[at] > before[at]]
            if any(self.groups[at].hard for at in worse):
                return None
            if outcome.likely:
                if worse or not any(after[at] < before[at] for at in to_restore):
                    return None
                likely.add(outcome.position)
        return likely

    def _outcomes(
        self, start: Position, step: tuple[Kind, ...], to_place: tuple[int, ...], seen: set[object], *, when_gone: bool
    ) -> Iterator[Outcome | None]:
        """Yield the possible ends of a step, and None if a replacement stays without a node.

        Pods are evicted one after another, in any order. The scheduler may place a replacement on any feasible node as
        soon as its pod is evicted.
        """
        todo: list[tuple[Position, tuple[Kind, ...], tuple[Kind, ...], tuple[int, ...], bool]] = [
            (start, step, (), to_place, True)
        ]
        while todo:
            state = todo.pop()
            if state in seen:
                continue
            seen.add(state)
            position, to_evict, terminating, waiting, likely = state
            if not to_evict and not waiting:
                yield Outcome(position, likely)
                continue
            for kind in set(to_evict):
                todo.append(
                    (
                        position.evict(kind),
                        _without(to_evict, kind),
                        tuple(sorted((*terminating, kind))),
                        tuple(sorted((*waiting, kind[0]))),
                        likely,
                    )
                )
            placeable = False
            for shape in set(waiting):
                held = self.feasible(shape, position, [] if when_gone else list(terminating))
                gone = self.feasible(shape, position, [])
                placeable = placeable or bool(held)
                best = {*self.likeliest(shape, held, position), *self.likeliest(shape, gone, position)}
                for host in {*held, *gone}:
                    todo.append(
                        (
                            position.place((shape, host)),
                            to_evict,
                            terminating,
                            _without(waiting, shape),
                            likely and host in best,
                        )
                    )
            if waiting and not to_evict and not placeable:
                yield None

    def _admits(self, at: int, shape: int, host: int, position: Position) -> bool:
        """PodTopologySpread's filter."""
        group = self.groups[at]
        domain = group.domain_of[host]
        if domain is None:
            return False
        counts = self.counts(group, position)
        return counts[domain] + group.counts[shape] - self.minimum(group, counts) <= group.max_skew

    def free(self, host: int, position: Position, terminating: list[Kind]) -> int:
        taken = sum(
            self.world.shapes[shape].size * (position.movable[shape][host] + position.staying[shape][host])
            for shape in self._shapes
        )
        taken += sum(self.world.shapes[shape].size for shape, at in terminating if at == host)
        return self.world.hosts[host].room - taken

    def _group(self, shape: Shape, rule: Rule) -> _Group:
        keys = {each.key for each in shape.rules if each.hard == rule.hard}
        domain_of = tuple(
            host.labels[rule.key] if keys <= host.labels.keys() and _counts(host, shape, rule) else None
            for host in self.world.hosts
        )
        domains = frozenset(domain for domain in domain_of if domain is not None)
        return _Group(
            identity=(
                rule,
                frozenset(keys),
                shape.pools if rule.honor_affinity else None,
                shape.tolerates and rule.honor_taints,
                shape.namespace,
            ),
            domain_of=domain_of,
            domains=domains,
            counts=tuple(each.namespace == shape.namespace and _selects(rule, each) for each in self.world.shapes),
            max_skew=rule.max_skew,
            at_least_zero=len(domains) < rule.min_domains,
            hard=rule.hard,
            restored=self.world.restores(rule),
        )


def _selects(rule: Rule, shape: Shape) -> bool:
    return rule.selector is not None and all(shape.labels.get(key) == value for key, value in rule.selector)


def _matches_affinity(host: Host, shape: Shape) -> bool:
    return shape.pools is None or host.labels.get("pool") in shape.pools


def _tolerates(host: Host, shape: Shape) -> bool:
    return (shape.tolerates or not host.tainted) and not host.cordoned


def _counts(host: Host, shape: Shape, rule: Rule) -> bool:
    return (not rule.honor_affinity or _matches_affinity(host, shape)) and (
        not rule.honor_taints or _tolerates(host, shape)
    )


def _allows(host: Host, shape: Shape) -> bool:
    return _matches_affinity(host, shape) and _tolerates(host, shape)


def _parts(step: tuple[Kind, ...]) -> Iterator[tuple[Kind, ...]]:
    """Yield the proper parts of a step."""
    for mask in range(1, (1 << len(step)) - 1):
        yield tuple(kind for at, kind in enumerate(step) if mask >> at & 1)


def _without(items: tuple[_T, ...], item: _T) -> tuple[_T, ...]:
    at = items.index(item)
    return items[:at] + items[at + 1 :]


def _changed(counts: tuple[tuple[int, ...], ...], kind: Kind, by: int) -> tuple[tuple[int, ...], ...]:
    shape, host = kind
    row = counts[shape]
    return (*counts[:shape], (*row[:host], row[host] + by, *row[host + 1 :]), *counts[shape + 1 :])
