"""Moves under way, as the policies' statuses keep them: whoever leads next follows them to their outcome.

A move is written down before its eviction is sent. So a process that is killed at any moment leaves behind which pods
it evicted, or was about to, and for which groups; and a group that a move did not improve is left alone by the next
process too. Without that a crash at every start could evict another pod each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from respread.api.status import (
    MAX_GROUPS_OF_MOVE,
    MAX_MOVES_IN_FLIGHT,
    MAX_NEWEST_PODS,
    LeftDomain,
    MoveInFlight,
    PolicyStatus,
)
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import WorkloadName
from respread.eviction.carry_out import Flights
from respread.eviction.in_flight import Flight, InFlight, Stage
from respread.eviction.pacing import Limiter, Pace
from respread.handlers.memory import group_name
from respread.planning.controllers import siblings_of
from respread.planning.plan import Move
from respread.planning.planner import PolicySetting
from respread.planning.policies import PolicyIndex
from respread.spread.group import GroupKey
from respread.spread.index import Spread

_SECOND: Final = timedelta(seconds=1)
"""The API server tells creation timestamps in whole seconds."""
_API_VERSIONS: Final = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "ReplicationController": "v1"}
"""Of the controllers that replace evicted pods."""


def moves_to_remember(in_flight: InFlight, snapshot: ClusterSnapshot) -> Mapping[str, tuple[MoveInFlight, ...]]:
    """Return what the policies' statuses are to say of the moves under way, by the policies' names.

    Args:
        in_flight: the moves.
        snapshot: the cluster as the watch shows it.
    """
    found: defaultdict[str, list[MoveInFlight]] = defaultdict(list)
    for flight in in_flight.flights:
        found[flight.move.policy].append(_remembered(flight, snapshot))
    return {policy: tuple(moves[:MAX_MOVES_IN_FLIGHT]) for policy, moves in found.items()}


class AskingRules(NamedTuple):
    """What decides whether a resumed move may be asked for again: what a status says is not a plan of ours."""

    setting: PolicySetting
    limiters: tuple[Limiter, ...]
    now: datetime
    """With a time zone."""

    def allow(self, moves: Iterable[Move], snapshot: ClusterSnapshot) -> frozenset[str]:
        """Return the UIDs of the pods that could have been planned for, as policies, protection and limits are now."""
        index = PolicyIndex(self.setting.policies, namespaced_policies=self.setting.namespaced_policies)
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

        pace = Pace(snapshot=snapshot, limiters=self.limiters, now=self.now.timestamp())
        return frozenset(move.pod.uid for move in pace.of([move for move in moves if may_go(move)]).now)


def resume(
    flights: Flights,
    statuses: Mapping[str, PolicyStatus],
    snapshot: ClusterSnapshot,
    spread: Spread,
    rules: AskingRules,
) -> None:
    """Take up the moves that the policies' statuses say are under way, and no others.

    Args:
        flights: what is known here; moves among it that are no longer in a status were seen to their end by others.
        statuses: by the policies' names.
        snapshot: the cluster as the watch shows it.
        spread: its spread groups.
        rules: by which those that may not have been made may be asked for again.
    """
    names: dict[str, dict[str, GroupKey]] = {}
    resumed: list[Flight] = []
    for policy, status in statuses.items():
        namespace = policy.rpartition("/")[0]
        for each in status.moves_in_flight:
            if namespace and each.namespace != namespace:
                continue  # no RebalancePolicy of ours says that: whoever wrote it is to reach no further than its own
            if each.namespace not in names:
                names[each.namespace] = {group_name(key): key for key in spread.by_namespace.get(each.namespace, ())}
            # Which were of one step is not remembered, and no plan has components below 0.
            move = _move(policy, each, snapshot, names[each.namespace], component=-1 - len(resumed))
            resumed.append(_flight(move, each, snapshot, flights))
    allowed = rules.allow((flight.move for flight in resumed), snapshot)
    flights.now = flights.now.resumed(msgspec.structs.replace(flight, ours=flight.uid in allowed) for flight in resumed)


def _remembered(flight: Flight, snapshot: ClusterSnapshot) -> MoveInFlight:
    move, controller = flight.move, flight.move.pod.controller
    newest, newest_pods = _newest(flight, snapshot)
    return MoveInFlight(
        uid=move.pod.uid,
        namespace=move.pod.namespace,
        pod=move.pod.name,
        node=move.pod.node_name,
        workload=str(move.workload),
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

    Of very many pods created in the same second none is named, and the moment is a second later: a replacement made
    within that very second would be missed, and the move's outcome is then Unknown.
    """
    others = [
        (each.creation_timestamp, each.name)
        for each in siblings_of(snapshot, flight.move.pod)
        if each.uid in flight.known and each.uid != flight.uid and each.creation_timestamp is not None
    ]
    newest = flight.newest
    if sum(created >= newest for created, _ in others) > MAX_NEWEST_PODS:
        newest += _SECOND
    return newest, tuple(sorted(name for created, name in others if created >= newest))[:MAX_NEWEST_PODS]


def _move(
    policy: str, remembered: MoveInFlight, snapshot: ClusterSnapshot, names: Mapping[str, GroupKey], *, component: int
) -> Move:
    kind, _, name = remembered.workload.partition("/")
    groups = [(names[each.group], each.domain) for each in remembered.groups if each.group in names]
    return Move(
        pod=_pod(remembered, snapshot),
        policy=policy,
        workload=WorkloadName(kind, remembered.namespace, name),
        turn=0,
        component=component,
        groups=tuple(key for key, _ in groups),
        from_domains=tuple(domain for _, domain in groups),
        to_domains=tuple(() for _ in groups),
        nodes=0,
        certain=False,
    )


def _flight(move: Move, remembered: MoveInFlight, snapshot: ClusterSnapshot, flights: Flights) -> Flight:
    sent_time = remembered.sent.timestamp()
    sent_at = flights.clock() - max(0.0, flights.wall_clock() - sent_time)
    # If its pod is gone by now and has no replacement, none is waited for.
    is_long_ago = flights.clock() - sent_at > flights.now.patience.longest_seconds
    older = (each.uid for each in siblings_of(snapshot, move.pod) if _is_older(each, remembered))
    return Flight(
        move=move,
        sent_at=sent_at,
        stage=Stage.LEAVING if is_long_ago and _there(remembered, snapshot) is None else Stage.SENT,
        stage_since=sent_at,
        known=frozenset(older) | {move.pod.uid},
        sent_time=sent_time,
        newest=remembered.newest,
    )


def _is_older(sibling: Pod, remembered: MoveInFlight) -> bool:
    created = sibling.creation_timestamp
    return created is None or created < remembered.newest or sibling.name in remembered.newest_pods


def _there(remembered: MoveInFlight, snapshot: ClusterSnapshot) -> Pod | None:
    there = snapshot.pods.get(ObjectKey(remembered.namespace, remembered.pod))
    return there if there is not None and there.uid == remembered.uid else None


def _pod(remembered: MoveInFlight, snapshot: ClusterSnapshot) -> Pod:
    """Return the evicted pod: as it is if it is still there, else as its controller's other pods are."""
    if (there := _there(remembered, snapshot)) is not None:
        return there
    bare = Pod(
        namespace=remembered.namespace,
        name=remembered.pod,
        uid=remembered.uid,
        spec=PodSpec(),
        controller=OwnerReference(
            _API_VERSIONS.get(remembered.controller_kind, ""),
            remembered.controller_kind,
            remembered.controller_name,
            remembered.controller_uid,
        ),
        node_name=remembered.node,
    )
    sibling = next(siblings_of(snapshot, bare), bare)
    return msgspec.structs.replace(sibling, name=bare.name, uid=bare.uid, node_name=bare.node_name)
