"""Which room is asked for in domains without a node, or without room on their nodes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from respread.api.policy import ExpectedDomains, Policy
from respread.api.reasons import Reason, number_of
from respread.cluster.meta import Labels
from respread.cluster.pod import PodSpec
from respread.planning.explaining import may_count
from respread.planning.plan import BlockedGroup, Plan
from respread.spread.group import GroupKey, SpreadGroup

_ID_LENGTH = 12


class RoomKey(NamedTuple):
    """Which room: that of one spread group in one domain."""

    policy: str
    """The name of the policy that asks for it."""
    policy_uid: str
    """Another policy of that name asks for another room: what asks for this one may be deleted with its policy."""
    group: GroupKey
    domain: str

    @property
    def id(self) -> str:
        """A short name, the same in every process."""
        text = "\n".join((self.policy, self.policy_uid, str(self.group), self.domain))
        return hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]


class WantedRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Room that is wanted in a domain without a node, or without room on its nodes."""

    key: RoomKey
    policy: Policy
    """The one that asks for it."""
    pods: int
    """For how many pods: as many as the domain lacks for the constraint to hold."""
    spec: PodSpec
    """Of the pods. The largest, if the group has several templates."""
    priority_class: str
    """The PriorityClass of the pods that ask for it."""
    workloads: str
    """The names of the group's workloads."""

    def __str__(self) -> str:
        """Return for whom it is, and where."""
        pods = number_of(self.pods, "pod")
        return f"{pods} of {self.workloads} in {self.key.group.namespace} in {self.key.domain}"

    def is_lowest(self, priority_classes: Mapping[str, int]) -> bool:
        """Return whether every ordinary pod takes precedence over those that ask for the room."""
        return priority_classes.get(self.priority_class, 0) < 0


def wanted_rooms(
    plan: Plan, groups: Mapping[GroupKey, SpreadGroup], policies: Mapping[str, Policy], node_labels: Iterable[Labels]
) -> Iterator[WantedRoom]:
    """Yield the room that policies ask for, in the plan's order.

    It is asked for only if the lack of a node, or of room on the nodes, is why the plan does not restore a group. Other
    groups may be held by something else, such as a back-off, and then a node would not help. The labels of nodes are
    read only if room may be wanted.
    """
    short = [each for each in plan.blocked if each.reason is Reason.DOMAIN_HAS_NO_NODE or each.full_domains]
    asking = [
        (each, expected)
        for each in short
        if (expected := _requested(policies.get(each.policy), each.group.topology_key)) is not None
    ]
    if not asking:
        return
    keys = {each.group.topology_key for each, _ in asking}
    there = {(key, labels[key]) for labels in node_labels for key in keys if key in labels}
    for blocked, expected in asking:
        group, policy = groups[blocked.group], policies[blocked.policy]
        counts = plan.counts_after.get(blocked.group, group.counts)
        domains = [each for each in expected.values if _is_short_of_room(each, blocked, there)]
        for domain in domains:
            key = RoomKey(policy.name, policy.uid, blocked.group, domain)
            if moves_into(key, plan):
                continue
            yield WantedRoom(
                key=key,
                policy=policy,
                pods=_lacking(group, counts, domain, len(domains)),
                spec=max(
                    (each.spec for each in group.carriers),
                    key=lambda spec: (spec.requests.get("cpu", 0), spec.requests.get("memory", 0)),
                ),
                priority_class=expected.priority_class_name or "",
                workloads=", ".join(map(str, group.workloads)) or "pods",
            )


def _is_short_of_room(domain: str, blocked: BlockedGroup, there: Container[tuple[str, str]]) -> bool:
    """Return whether a domain keeps a group from being restored because it has no node, or no room on its nodes."""
    if blocked.reason is not Reason.DOMAIN_HAS_NO_NODE:
        return domain in blocked.full_domains
    return (blocked.group.topology_key, domain) not in there and may_count(blocked.group, domain)


def is_short(key: RoomKey, plan: Plan, groups: Mapping[GroupKey, SpreadGroup], policies: Mapping[str, Policy]) -> bool:
    """Return whether a group still has too few pods in a domain for which room was asked, with or without a node."""
    group, policy = groups.get(key.group), policies.get(key.policy)
    if group is None or policy is None or policy.uid != key.policy_uid:
        return False
    expected = _requested(policy, key.group.topology_key)
    if expected is None or key.domain not in expected.values:
        return False
    most = max(group.counts.values(), default=0)
    return plan.policies.get(key.group) == key.policy and most - group.count(key.domain) > group.key.max_skew


def moves_into(key: RoomKey, plan: Plan) -> bool:
    """Return whether the plan moves a pod of the group to a node of the domain, now or in a later turn."""
    return any(
        group == key.group and key.domain in domains
        for move in plan.moves
        for group, domains in zip(move.groups, move.to_domains, strict=True)
    )


def asks_for_room(policy: Policy) -> bool:
    """Return whether a policy asks for room in any domain."""
    return any(each.provision == "Request" for each in policy.spec.constraints.expected_domains)


def _requested(policy: Policy | None, topology_key: str) -> ExpectedDomains | None:
    domains = () if policy is None else policy.spec.constraints.expected_domains
    return next((each for each in domains if each.topology_key == topology_key and each.provision == "Request"), None)


def _lacking(group: SpreadGroup, counts: Mapping[str, int], domain: str, short: int) -> int:
    """Return the fewest pods that a domain lacks for the constraint to hold.

    With n pods in each domain that is short of room, each other one may hold n + maxSkew.
    """
    with_nodes = group.domains.nodes
    domains = len(with_nodes) + (0 if domain in with_nodes else short)
    above = sum(counts.values()) - (domains - short) * group.key.max_skew
    return max(1, -(-above // domains) - counts.get(domain, 0))
