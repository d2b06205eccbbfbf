"""Domains that a policy expects and that have no node. The scheduler does not know them, so no pod can move there.

They are reported for a group only if it would be violated with them present and empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.cluster.pod import NodeSelector, NodeSelectorTerm
from respread.planning.held import Held
from respread.scheduling.filters.node_affinity import matches_node_selector
from respread.scheduling.view.node_table import NodeTable
from respread.spread.group import GroupKey, SpreadGroup

Stuck: TypeAlias = tuple[GroupKey, Held]
"""A group that is not, or not fully, restored, with the reason."""


class MissingDomains:
    """Domains that policies expect: which have no node, and in which room is asked for."""

    __slots__ = ("_missing", "_requested")

    def __init__(self, policies: Iterable[Policy], table: NodeTable) -> None:
        """Compare what policies expect with the nodes."""
        self._missing: dict[tuple[str, str], list[str]] = {}
        """By policy and topology key; never empty."""
        self._requested: dict[tuple[str, str], frozenset[str]] = {}
        """The domains in which room is asked for, by policy and topology key."""
        for policy in policies:
            for expected in policy.spec.constraints.expected_domains:
                there = table.column(expected.topology_key).nodes_with
                if missing := sorted(set(expected.values) - there.keys()):
                    self._missing[policy.name, expected.topology_key] = missing
                if expected.provision == "Request":
                    self._requested[policy.name, expected.topology_key] = frozenset(expected.values)

    def complete(
        self, stuck: Iterable[Stuck], selected: Mapping[GroupKey, str], groups: Mapping[GroupKey, SpreadGroup]
    ) -> list[Stuck]:
        """Return why groups are not restored, including the domains that are missing for them.

        A missing domain replaces the reason that there are fewer domains than minDomains. Every other reason has
        priority.

        Args:
            stuck: the groups that stay violated, with the reason.
            selected: the groups that policies restore, and the names of these policies.
            groups: all groups.
        """
        known = [(key, self._with_remedy(key, held, selected[key])) for key, held in stuck]
        if not self._missing:
            return known
        found = {key: held for key, name in selected.items() if (held := self._held(groups[key], name)) is not None}
        kept = [(key, held) for key, held in known if key not in found or held.reason is not Reason.TOO_FEW_DOMAINS]
        others = found.keys() - {key for key, _ in kept}
        return kept + [(key, held) for key, held in found.items() if key in others]

    def _with_remedy(self, key: GroupKey, held: Held, policy: str) -> Held:
        """Return why a group is not restored, with what its policy does about domains without room."""
        domains = self._requested.get((policy, key.topology_key), frozenset())
        if domains.isdisjoint(held.full_domains):
            return held
        return msgspec.structs.replace(held, message=f"{held.message}; {_asks_for_nodes(policy)}")

    def _held(self, group: SpreadGroup, policy: str) -> Held | None:
        key = group.key
        most = max(group.counts.values(), default=0)
        if key.counts(group.counts, len(group.domains.nodes) + 1).skew <= key.max_skew:
            return None
        missing = [each for each in self._missing.get((policy, key.topology_key), ()) if may_count(key, each)]
        if not missing:
            return None
        one = len(missing) == 1
        fullest = min(domain for domain, count in group.counts.items() if count == most)
        if (policy, key.topology_key) in self._requested:
            remedy = _asks_for_nodes(policy)
        else:
            remedy = (
                f"add nodes labelled {key.topology_key}={missing[0]}, or take {'it' if one else 'them'} out of "
                f"spec.constraints.expectedDomains of policy {policy}"
            )
        return Held(
            Reason.DOMAIN_HAS_NO_NODE,
            f"{_listed(missing)} {'has' if one else 'have'} no node, so the scheduler does not know "
            f"{'it' if one else 'them'}, and {fullest} holds {most} pods, where maxSkew {key.max_skew} would not allow "
            f"it with {'it' if one else 'them'} there: {remedy}",
            named=_listed(missing),
        )


def _asks_for_nodes(policy: str) -> str:
    return f"policy {policy} asks for nodes there, and its condition RoomMissing says how that goes"


def may_count(key: GroupKey, domain: str) -> bool:
    """Return whether nodes of a domain can count for a group. The affinity of its pods may exclude them."""
    eligibility, topology_key = key.eligibility, key.topology_key
    if eligibility.node_selector.get(topology_key, domain) != domain:
        return False
    if eligibility.node_affinity is None:
        return True
    terms = [
        tuple(each for each in term.match_expressions if each.key == topology_key)
        for term in eligibility.node_affinity.node_selector_terms
    ]
    about_domain = NodeSelector(tuple(NodeSelectorTerm(match_expressions=term) for term in terms))
    return not all(terms) or matches_node_selector(about_domain, None, {topology_key: domain})


def _listed(domains: Sequence[str]) -> str:
    return domains[0] if len(domains) == 1 else f"{', '.join(domains[:-1])} and {domains[-1]}"
