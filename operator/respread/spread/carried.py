"""Which spread groups a pod belongs to, by its own constraints or else by the scheduler's default constraints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.configuration import SchedulerConfiguration
from respread.scheduling.default_selector import default_selector
from respread.scheduling.filters.topology_spread import effective_selector, required_keys
from respread.scheduling.verdict import Unknown
from respread.spread.domains import Eligibility, eligibility_of
from respread.spread.group import GroupKey, Template

HARD_DEFAULTS: Final[frozenset[WhenUnsatisfiable]] = frozenset({"DoNotSchedule"})
ALL_DEFAULTS: Final[frozenset[WhenUnsatisfiable]] = frozenset({"DoNotSchedule", "ScheduleAnyway"})


class DefaultConstraints(msgspec.Struct, frozen=True):
    """Which default constraints form spread groups.

    Each costs as much as a constraint of the pods' own, and needs the selector of each pod's owner.
    """

    configuration: SchedulerConfiguration
    kinds: frozenset[WhenUnsatisfiable] = HARD_DEFAULTS
    """Hard ones always matter, because the scheduler places no pod against them. Soft ones matter if a policy restores
    such constraints; every cluster has some (KEP 1258)."""

    @property
    def exist(self) -> bool:
        """Whether a pod may get a constraint of one of those kinds."""
        given = (each for profile in self.configuration.profiles.values() for each in profile.default_constraints)
        return any(each.when_unsatisfiable in self.kinds for each in given)

    def of(self, spec: PodSpec) -> tuple[TopologySpreadConstraint, ...]:
        """Return the default constraints for pods of a spec, without selectors.

        There are none if the pods have constraints of their own.
        """
        if spec.topology_spread_constraints:
            return ()
        profile = self.configuration.profiles.get(spec.scheduler_name)
        if profile is None or "PodTopologySpread" not in profile.plugins:
            return ()
        return tuple(each for each in profile.default_constraints if each.when_unsatisfiable in self.kinds)

    def keys_of(self, pod: Pod, snapshot: ClusterSnapshot) -> tuple[GroupKey, ...]:
        """Return the groups of a pod without constraints of its own; none while the selector is unknown."""
        constraints = self.of(pod.spec)
        if not constraints:
            return ()
        selector = default_selector(pod, snapshot)
        if isinstance(selector, Unknown) or selector.matches_everything:
            return ()
        # Only the built-in ones don't require a node to have the keys of all of them.
        each_alone = self.configuration.profiles[pod.spec.scheduler_name].system_defaults
        return tuple(
            _key(pod.namespace, each, selector, _eligibility(pod.spec, each, [each] if each_alone else constraints))
            for each in constraints
        )


def own_keys(namespace: str, template: Template) -> tuple[GroupKey, ...]:
    """Return the group of each topology spread constraint of pods of a template, in their order."""
    own = template.spec.topology_spread_constraints
    # A pod may have ten thousand constraints, and each kind of eligibility has the topology keys of all of them.
    shared: dict[tuple[str, str, str], Eligibility] = {}
    keys: list[GroupKey] = []
    for each in own:
        kind = (each.when_unsatisfiable, each.node_affinity_policy, each.node_taints_policy)
        if (eligibility := shared.get(kind)) is None:
            eligibility = shared[kind] = _eligibility(template.spec, each, own)
        keys.append(_key(namespace, each, effective_selector(each, template.labels), eligibility))
    return tuple(keys)


def _eligibility(
    spec: PodSpec, constraint: TopologySpreadConstraint, together: Iterable[TopologySpreadConstraint]
) -> Eligibility:
    """Return what makes nodes eligible for a constraint; they need the topology keys of those with it."""
    return eligibility_of(spec, constraint, required_keys(together, constraint.when_unsatisfiable))


def _key(
    namespace: str, constraint: TopologySpreadConstraint, selector: Selector, eligibility: Eligibility
) -> GroupKey:
    """Return the group of a constraint.

    Args:
        namespace: the namespace of the pods.
        constraint: a constraint of the pods.
        selector: its effective selector.
        eligibility: which nodes count for it.
    """
    return GroupKey(
        namespace=namespace,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        selector=selector,
        eligibility=eligibility,
    )
