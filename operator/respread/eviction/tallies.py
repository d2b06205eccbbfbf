"""Whether the limits of policies have room for a step, beside evictions in flight and those of the last hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import ceil
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.fields import MAX_COUNT
from respread.api.reasons import Held, Reason, number_of
from respread.api.record import MAX_MOVES_IN_FLIGHT, MAX_RECENT_EVICTIONS
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.limiter import GroupPace, Limiter
from respread.eviction.standing import Standings, Trust, unproven_share
from respread.moves.entry import controller_uid_of
from respread.planning.placement import is_replaced_when_gone
from respread.planning.plan import Move, Step
from respread.planning.victims.protection import is_active, siblings_of
from respread.spread.group import GroupKey

HOUR_SECONDS: Final = 3600.0
MINUTE_SECONDS: Final = 60


class MinuteOfEvictions(NamedTuple):
    """The evictions of a minute. They count as being made at the time of the last one."""

    last: float
    """Seconds since the epoch."""
    evictions: int

    @property
    def minute(self) -> int:
        """The minute, counted from the epoch, with its end: the next leader reads them as if all were made then."""
        return ceil(self.last / MINUTE_SECONDS) - 1


class EvictionHistory(msgspec.Struct, frozen=True):
    """The evictions that count for a policy's `limits.perHour`, with their times.

    They are counted by minute, so an hour takes the same memory for a million evictions as for a few.
    """

    minutes: Map[str, tuple[MinuteOfEvictions, ...]] = Map()
    """By policy name, the oldest first, at most `MAX_RECENT_EVICTIONS`."""

    def with_evictions(self, policies: Iterable[str], last: float, evictions: int = 1) -> EvictionHistory:
        """Return the history with more evictions in one minute, and without those older than an hour.

        `policies` are those for which they count. `last` is when the last of them was made, in seconds since the epoch.
        """
        minutes = self.minutes.mutate()
        for policy in policies:
            minutes[policy] = _with(self.in_last_hour(policy, last), MinuteOfEvictions(last, evictions))
        return EvictionHistory(minutes.finish())

    def in_last_hour(self, policy: str, now: float) -> tuple[MinuteOfEvictions, ...]:
        """Return the evictions of the last hour that count for a policy.

        Evictions in the future, from before a clock was set back, count too: too few evictions do no harm.
        """
        return tuple(each for each in self.minutes.get(policy, ()) if each.last > now - HOUR_SECONDS)

    def count_in_last_hour(self, policy: str, now: float) -> int:
        """Return the number of evictions of the last hour that count for a policy."""
        return sum(each.evictions for each in self.in_last_hour(policy, now))


class GroupHistory(msgspec.Struct, frozen=True):
    """The evictions of the last hour, by group. A value: every change returns another one.

    If something undoes the evictions, such as another descheduler or an autoscaler that scales up and down, their
    number must be bounded. So evictions that improved the group count like all others, because an oscillation consists
    of them. A group that becomes balanced in between keeps its count.
    """

    evictions: EvictionHistory = EvictionHistory()
    """By a name for the group that survives a restart."""
    policies: Map[str, str] = Map()
    """By the same names, the policy for which the last one was made. Its status stores them."""

    def with_evictions(self, policy: str, groups: Iterable[str], last: float, evictions: int = 1) -> GroupHistory:
        """Return it with more evictions for some groups.

        Each of them was made for all these groups. `last` is when the last of them was made, in seconds since the
        epoch.
        """
        names = tuple(groups)
        policies = self.policies.update(dict.fromkeys(names, policy))
        return GroupHistory(self.evictions.with_evictions(names, last, evictions), policies)

    def in_last_hour(self, group: str, now: float) -> int:
        """Return the number of evictions for a group within the last hour."""
        return self.evictions.count_in_last_hour(group, now)

    def of_policy(self, policy: str, now: float) -> Iterator[tuple[str, tuple[MinuteOfEvictions, ...]]]:
        """Yield the groups with evictions for a policy within the last hour, and these evictions."""
        for name, known in self.policies.items():
            if known == policy and (recent := self.evictions.in_last_hour(name, now)):
                yield name, recent

    def without_old(self, now: float) -> GroupHistory:
        """Forget the groups without evictions in the last hour."""
        kept = {name: policy for name, policy in self.policies.items() if self.evictions.in_last_hour(name, now)}
        if len(kept) == len(self.policies):
            return self
        minutes = Map({name: self.evictions.minutes[name] for name in kept})
        return GroupHistory(EvictionHistory(minutes), Map(kept))


def _with(known: Iterable[MinuteOfEvictions], more: MinuteOfEvictions) -> tuple[MinuteOfEvictions, ...]:
    """Return minutes with another one, or with more evictions in one of them."""
    by_minute = {each.minute: each for each in known}
    same = by_minute.get(more.minute, more._replace(evictions=0))
    by_minute[more.minute] = _together(same, more)
    minutes = [each for _, each in sorted(by_minute.items())]
    if len(minutes) > MAX_RECENT_EVICTIONS:  # An hour has 61. Others come from clocks that were set back.
        oldest, second, *others = minutes
        minutes = [_together(oldest, second), *others]
    return tuple(minutes)


def _together(one: MinuteOfEvictions, other: MinuteOfEvictions) -> MinuteOfEvictions:
    return MinuteOfEvictions(max(one.last, other.last), min(one.evictions + other.evictions, MAX_COUNT))


class Needed(NamedTuple):
    """Evictions that spread groups of the same pods still need, and that can't be planned for the moment."""

    policy: str
    """The name of the policy that restores them."""
    namespace: str
    matched: tuple[Labels, ...]
    """The label sets of the pods."""
    evictions: int
    """The fewest that they still need."""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The evictions that limits count, and the limits."""

    snapshot: ClusterSnapshot
    limiters: tuple[Limiter, ...]
    """One for every policy."""
    in_flight: tuple[Move, ...] = ()
    history: EvictionHistory = EvictionHistory()
    groups: Callable[[GroupKey], GroupPace | None] = lambda _: None
    """Returns how many more evictions a spread group may have; None if unlimited."""
    trust: Trust | None = None
    """What became of the workloads' last replacements; None if that is not used."""
    standings: Standings | None = None
    """The standings of the namespaces; None if they are not used."""
    now: float
    """Seconds since the epoch."""


def replicas_of(snapshot: ClusterSnapshot, pod: Pod, in_flight: Collection[str]) -> int:
    """Return the number of pods of a pod's controller, with those in flight that come back when they are gone.

    `in_flight` has their UIDs, and maybe others.
    """
    return sum(
        is_active(each) or (each.uid in in_flight and is_replaced_when_gone(each))
        for each in siblings_of(snapshot, pod)
    )


class ControllerPods:
    """Examines each controller once."""

    def __init__(self, snapshot: ClusterSnapshot, accounted: Collection[str]) -> None:
        """Use a snapshot. The UIDs are of pods that already count, because they are evicted or are replacements."""
        self._snapshot = snapshot
        self._accounted = set(accounted)
        self._found: dict[str, tuple[int, dict[str, str]]] = {}

    def go(self, step: Step) -> None:
        """Record that the pods of a step are evicted now."""
        self._accounted.update(move.pod.uid for move in step)

    def replicas(self, move: Move) -> int:
        """Return the number of pods of a move's controller, with those in flight that come back when they are gone.

        It wants no fewer, or its last look would hold the move.
        """
        return self._of(move)[0]

    def not_ready(self, move: Move, step: Step) -> Sequence[str]:
        """Return the names of the controller's pods that are not Ready, except those in flight or in a step."""
        leaving = {each.pod.uid for each in step}
        return [name for uid, name in self._of(move)[1].items() if uid not in self._accounted and uid not in leaving]

    def _of(self, move: Move) -> tuple[int, dict[str, str]]:
        uid = controller_uid_of(move)
        if (known := self._found.get(uid)) is None:
            active = [pod for pod in siblings_of(self._snapshot, move.pod) if is_active(pod)]
            number = replicas_of(self._snapshot, move.pod, self._accounted)
            known = self._found[uid] = (number, {pod.uid: pod.name for pod in active if not pod.ready})
        return known


class LimitTallies:
    """The current counts, by the limits that a step may reach."""

    def __init__(self, counted: Counted, steps: Iterable[Step], controllers: ControllerPods) -> None:
        namespaces = {step[0].pod.namespace for step in steps} | {move.pod.namespace for move in counted.in_flight}
        of_policy: dict[str, list[Move]] = {}
        for move in counted.in_flight:
            of_policy.setdefault(move.policy, []).append(move)
        policies = {move.policy for step in steps for move in step}
        self._everywhere: list[LimitTally] = []
        self._own: dict[str, LimitTally] = {}
        for limiter in counted.limiters:
            if limiter.shared:
                self._everywhere.append(LimitTally(limiter, counted, counted.in_flight, controllers, namespaces))
            elif limiter.policy in policies:
                under_way = of_policy.get(limiter.policy, ())
                self._own[limiter.policy] = LimitTally(limiter, counted, under_way, controllers, namespaces)

    def of(self, step: Step) -> Iterator[LimitTally]:
        """Yield the tallies that may count a step. There may be thousands of policies that don't apply to it."""
        yield from self._everywhere
        for policy in sorted({move.policy for move in step}):
            if (own := self._own.get(policy)) is not None:
                yield own


class LimitTally:
    """The current counts for one policy's limits."""

    def __init__(
        self,
        limiter: Limiter,
        counted: Counted,
        in_flight: Iterable[Move],
        controllers: ControllerPods,
        namespaces: Collection[str],
    ) -> None:
        """Count the moves in flight that may count for the limits; `namespaces` have moves in flight or to make."""
        self.limiter = limiter
        self._snapshot = counted.snapshot
        self._controllers = controllers
        self._groups = counted.groups
        self._groups_now: Counter[GroupKey] = Counter()
        self._standings = counted.standings if limiter.shared else None
        self._trust = counted.trust
        self._now = counted.now
        self._has_rivals = len(namespaces) > 1
        self._in_last_hour = counted.history.count_in_last_hour(limiter.policy, counted.now)
        self._total = 0
        self._unproven = 0
        self._counts: Counter[object] = Counter()
        for move in in_flight:
            if limiter.bounds(move, counted.snapshot):
                self._count(move)

    @property
    def left_in_hour(self) -> int | None:
        """How many more evictions `limits.perHour` allows now; None without that limit."""
        limit = self.limiter.limits.per_hour
        return None if limit is None else limit - self._in_last_hour

    def number(self, moves: Step) -> int:
        """Return how many of some moves count for these limits."""
        return len(self._bounded(moves))

    def applies(self, policy: str, namespace: str, labels: Labels) -> bool:
        """Return whether an eviction for a policy, of a pod with these labels, counts for these limits."""
        return self.limiter.applies(policy, namespace, labels, self._snapshot)

    def kept_for_others(self) -> Held:
        """Return that `limits.perHour` allows a few more evictions, which finish other groups."""
        return Held(
            Reason.LIMIT_REACHED,
            f"limits.perHour of policy {self.limiter.policy} is {self.limiter.limits.per_hour}, and what it still "
            "allows within this hour goes to spread groups that can be restored with it",
        )

    def add(self, step: Step) -> None:
        """Count the moves of a step that is made now, if they count for these limits."""
        for move in self._bounded(step):
            self._in_last_hour += 1
            self._groups_now.update(move.groups)
            self._count(move)

    def full(self, step: Step) -> Held | None:
        """Return the limit that a step would exceed, or None."""
        bounded = self._bounded(step)
        if not bounded:
            return None
        in_all, most = "inFlight", self.limiter.limits.in_flight
        if most > MAX_MOVES_IN_FLIGHT:
            in_all, most = f"inFlight ({most}, of which {MAX_MOVES_IN_FLIGHT} count)", MAX_MOVES_IN_FLIGHT
        return (
            self._beyond(in_all, self._total, len(bounded), most)
            or self._beyond_share(bounded, most)
            or self._of_places(bounded)
            or self._of_hour(bounded)
            or self._of_groups(bounded)
        )

    def _of_places(self, bounded: Step) -> Held | None:
        limits = self.limiter.limits
        more: Counter[object] = Counter(place for move in bounded for place in _places(move))
        for move in bounded:
            namespace, node, workload = _places(move)
            of_workload = limits.in_flight_of_workload(self._controllers.replicas(move))
            for what, place, limit in (
                (f"inFlightPerNamespace ({namespace[1]})", namespace, limits.in_flight_per_namespace),
                (f"inFlightPerNode ({node[1]})", node, limits.in_flight_per_node),
                (f"inFlightPerWorkload ({move.workload})", workload, of_workload),
            ):
                if (held := self._beyond(what, self._counts[place], more[place], limit)) is not None:
                    return held
            not_ready = self._controllers.not_ready(move, bounded)
            if (held := self._beyond_trust(move, more[workload], not_ready)) is not None:
                return held
            if self._counts[workload] + more[workload] + len(not_ready) > of_workload:
                return self._beside_not_ready(move, not_ready, of_workload)
        return None

    def _beyond_trust(self, move: Move, more: int, not_ready: Sequence[str]) -> Held | None:
        """Return that others of a workload must be Ready before more of its pods are evicted, or None."""
        if self._trust is None:
            return None
        if not_ready and self._trust.has_failed(move.workload, self._now):
            return Held(
                Reason.PODS_NOT_READY,
                f"the last replacement of a pod of {move.workload} was not Ready in time, and {min(not_ready)} is not "
                "Ready: no other pod is tried before it is",
            )
        most = self._trust.most(move.workload, self._now)
        in_flight = self._counts["workload", move.workload]
        if in_flight + more <= max(most, more):
            return None
        return Held(
            Reason.LIMIT_REACHED,
            f"{in_flight} evictions of pods of {move.workload} are in flight, and no more than {most} until another "
            "replacement is Ready: limits.inFlightPerWorkload is reached step by step",
        )

    def _of_hour(self, bounded: Step) -> Held | None:
        limit = self.limiter.limits.per_hour
        if limit == 0:
            return Held(Reason.LIMIT_REACHED, f"limits.perHour of policy {self.limiter.policy} is 0: none is made")
        return None if limit is None else self._beyond("perHour", self._in_last_hour, len(bounded), limit)

    def _of_groups(self, bounded: Step) -> Held | None:
        more = Counter(key for move in bounded for key in move.groups)
        for key, count in more.items():
            group = self._groups(key)
            if group is not None:
                made = group._replace(in_last_hour=group.in_last_hour + self._groups_now[key])
                if (held := made.beyond(self.limiter.policy, self.limiter.limits, count)) is not None:
                    return held
        return None

    def _bounded(self, step: Step) -> Step:
        return tuple(move for move in step if self.limiter.bounds(move, self._snapshot))

    def _count(self, move: Move) -> None:
        self._total += 1
        self._counts.update(_places(move))
        if self._standings is not None and not self._standings.ready.get(move.pod.namespace):
            self._unproven += 1

    def _beyond_share(self, bounded: Step, most: int) -> Held | None:
        """Return that a namespace does not get a place now because others may need it, or None.

        A new namespace always gets a first place, and all places are available while no other namespace needs any.
        """
        if self._standings is None:
            return None
        namespace = bounded[0].pod.namespace
        was_ready = self._standings.ready.get(namespace)
        is_first = was_ready is None and not (self._has_rivals and self._counts["namespace", namespace])
        if was_ready or is_first:
            return None
        share, taken = unproven_share(most), self._unproven
        if taken == 0 or taken + len(bounded) <= share:
            return None
        what = "no replacement was Ready yet" if was_ready is None else "the last replacement was not Ready"
        return Held(
            Reason.LIMIT_REACHED,
            f"in namespace {namespace} {what}: such namespaces share {share} of the {most} evictions that "
            f"limits.inFlight of policy {self.limiter.policy} allows, and {taken} are in flight",
        )

    def _beyond(self, what: str, count: int, more: int, limit: int) -> Held | None:
        """Return that this many more evictions would exceed a limit, or None."""
        if count + more <= limit:
            return None
        named = f"limits.{what} of policy {self.limiter.policy} is {limit}"
        if more > limit:
            return Held(
                Reason.LIMIT_REACHED,
                f"{named}, and {more} of the pods that it counts can only go together: set it to {more} or more",
            )
        number = number_of(count, "eviction")
        if what == "perHour":
            which = "was made within the last hour" if count == 1 else "were made within the last hour"
        else:
            which = "is in flight" if count == 1 else "are in flight"
        beside = f"; {more} more have to be made together" if more > 1 else ""
        return Held(Reason.LIMIT_REACHED, f"{named}, and {number} {which}{beside}")

    def _beside_not_ready(self, move: Move, not_ready: Sequence[str], limit: int) -> Held:
        pods, example = "1 of its pods is", min(not_ready)
        if len(not_ready) > 1:
            pods, example = f"{len(not_ready)} of its pods are", f"{example} for one"
        return Held(
            Reason.PODS_NOT_READY,
            f"limits.inFlightPerWorkload ({move.workload}) of policy {self.limiter.policy} is {limit}, and {pods} not "
            f"Ready, {example}: a pod that is not Ready counts like an eviction in flight",
        )


def _places(move: Move) -> tuple[tuple[str, str], tuple[str, str], tuple[str, object]]:
    """Return what a move counts for besides the total: its pod's namespace, node and workload."""
    return ("namespace", move.pod.namespace), ("node", move.pod.node_name), ("workload", move.workload)
