"""Moves in flight in the policies' statuses: the next leader follows them to their outcome.

A move is recorded before its eviction is sent. So a process that is killed at any moment leaves behind which pods it
evicted, or was about to, and for which groups. Groups that a move did not improve back off in the next process too.
Without this, a crash at every start could evict another pod each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from respread.api.recorded import (
    MAX_GROUPS_OF_MOVE,
    MAX_MOVES_IN_FLIGHT,
    MAX_NEWEST_PODS,
    MAX_WORKLOAD_LENGTH,
    LeftDomain,
    MoveInFlight,
)
from respread.api.status import PolicyStatus
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.checkpoint import group_name
from respread.eviction.flight import Flight
from respread.eviction.in_flight import InFlight
from respread.eviction.limits.limiter import Limiter
from respread.eviction.pacing import Pace
from respread.eviction.remembered import ClockReading, remembered_flights
from respread.planning.plan import Move
from respread.planning.planner import PolicySetting
from respread.planning.victims.controllers import siblings_of
from respread.planning.victims.policies import PolicyIndex
from respread.spread.group import GroupKey
from respread.spread.index import Spread

_SECOND: Final = timedelta(seconds=1)
"""The API server stores creation timestamps in whole seconds."""
_LONG_AGO_SECONDS: Final = 30.0
"""Further than this the clocks of the API server and of this process are not apart: its Lease would not work either."""


def moves_to_remember(in_flight: InFlight, snapshot: ClusterSnapshot) -> Mapping[str, tuple[MoveInFlight, ...]]:
    """Return the moves in flight for the policies' statuses, by the policies' names.

    Args:
        in_flight: the moves.
        snapshot: the cluster as the watch shows it.
    """
    found: defaultdict[str, list[MoveInFlight]] = defaultdict(list)
    for flight in in_flight.flights:
        found[flight.move.policy].append(_remembered(flight, snapshot))
    return {policy: tuple(moves[:MAX_MOVES_IN_FLIGHT]) for policy, moves in found.items()}


def moves_of(policy: str, in_flight: InFlight, snapshot: ClusterSnapshot) -> tuple[MoveInFlight, ...]:
    """Return the moves in flight for the status of one policy; see `moves_to_remember`."""
    flights = [flight for flight in in_flight.flights if flight.move.policy == policy]
    return tuple(_remembered(flight, snapshot) for flight in flights[:MAX_MOVES_IN_FLIGHT])


class AskingRules(NamedTuple):
    """What decides whether a recovered move may be sent again, because a status is not a plan of ours."""

    setting: PolicySetting
    limiters: tuple[Limiter, ...]
    now: datetime
    """With a time zone."""

    def allow(self, flights: Iterable[Flight], snapshot: ClusterSnapshot) -> frozenset[str]:
        """Return the UIDs of the pods that could be planned with the current policies, protection and limits.

        Pods that their controllers have created since don't count as not Ready, because they are replacements.
        """
        index = PolicyIndex(self.setting.policies)
        protections = self.setting.protections()

        def may_go(move: Move) -> bool:
            namespace = snapshot.namespaces.get(move.pod.namespace)
            policies = index.in_namespace(move.pod.namespace, None if namespace is None else namespace.labels)
            policy = policies.governance(move.pod.labels).policy
            return (
                policy is not None
                and policy.name == move.policy
                and policy.name in protections
                and protections[policy.name].of_pod(move.pod, self.now) is None
            )

        asked = [flight for flight in flights if may_go(flight.move)]
        replacements = frozenset(
            pod.uid for flight in asked for pod in siblings_of(snapshot, flight.move.pod) if pod.uid not in flight.known
        )
        pace = Pace(snapshot=snapshot, limiters=self.limiters, replacements=replacements, now=self.now.timestamp())
        return frozenset(move.pod.uid for move in pace.of([flight.move for flight in asked]).now)


def resumed(
    known: InFlight,
    statuses: Mapping[str, PolicyStatus],
    snapshot: ClusterSnapshot,
    spread: Spread,
    rules: AskingRules,
    moment: ClockReading,
) -> InFlight:
    """Return exactly the moves that are in flight according to the policies' statuses.

    Args:
        known: the moves known here. Those that are no longer in a status were followed to their end by others.
        statuses: by the policies' names.
        snapshot: the cluster as the watch shows it.
        spread: its spread groups.
        rules: decide whether those that may not have been made may be sent again.
        moment: now.
    """
    names: dict[str, dict[str, GroupKey]] = {}

    def groups_named(namespace: str) -> Mapping[str, GroupKey]:
        if namespace not in names:
            names[namespace] = {group_name(key): key for key in spread.by_namespace.get(namespace, ())}
        return names[namespace]

    flights = list(remembered_flights(statuses, snapshot, groups_named, moment, known.patience))
    allowed = rules.allow(flights, snapshot)
    return known.resumed(msgspec.structs.replace(flight, ours=flight.uid in allowed) for flight in flights)


def _remembered(flight: Flight, snapshot: ClusterSnapshot) -> MoveInFlight:
    move, controller = flight.move, flight.move.pod.controller
    newest, newest_pods = _newest(flight, snapshot)
    return MoveInFlight(
        uid=move.pod.uid,
        namespace=move.pod.namespace,
        pod=move.pod.name,
        node=move.pod.node_name,
        workload=str(move.workload)[:MAX_WORKLOAD_LENGTH],  # one that somebody forged may have no slash, and gets one
        controller_kind="" if controller is None else controller.kind,
        controller_name="" if controller is None else controller.name,
        controller_uid="" if controller is None else controller.uid,
        groups=tuple(
            LeftDomain(group_name(key), domain) for key, domain in zip(move.groups, move.from_domains, strict=True)
        )[:MAX_GROUPS_OF_MOVE],
        sent=datetime.fromtimestamp(int(flight.sent_time), UTC),
        newest=newest,
        newest_pods=newest_pods,
    )


def _newest(flight: Flight, snapshot: ClusterSnapshot) -> tuple[datetime, tuple[str, ...]]:
    """Return a moment, and the pods created then or later that are not the replacement.

    Where the newest pod was created long before the eviction was sent, a second later is as good, and names nobody.
    Of very many pods created in the same second none is named, and the moment is a second later: a replacement made
    within that very second would be missed, and the move's outcome is then Unknown.
    """
    others = [
        (each.creation_timestamp, each.name)
        for each in siblings_of(snapshot, flight.move.pod)
        if each.uid in flight.known and each.uid != flight.uid and each.creation_timestamp is not None
    ]
    newest = flight.newest
    as_young = sum(created >= newest for created, _ in others)
    if as_young > MAX_NEWEST_PODS or (as_young and flight.sent_time - newest.timestamp() > _LONG_AGO_SECONDS):
        newest += _SECOND
    return newest, tuple(sorted(name for created, name in others if created >= newest))[:MAX_NEWEST_PODS]
