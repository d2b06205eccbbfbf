"""Which spread groups a pod belongs to for the constraints it has: its own, or else the scheduler's defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint, WhenUnsatisfiable
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.configuration import SchedulerConfiguration
from respread.scheduling.default_selector import default_selector
from respread.scheduling.filters.topology_spread import effective_selector, required_keys
from respread.scheduling.verdict import Unknown
from respread.spread.domains import eligibility_of
from respread.spread.group import GroupKey, Template

HARD_DEFAULTS: Final[frozenset[WhenUnsatisfiable]] = frozenset({"DoNotSchedule"})
ALL_DEFAULTS: Final[frozenset[WhenUnsatisfiable]] = frozenset({"DoNotSchedule", "ScheduleAnyway"})


class DefaultConstraints(msgspec.Struct, frozen=True):
    """Which of the constraints that schedulers give to pods without any of their own form spread groups.

    Each costs what a constraint of the pods' own would, and the selector of each pod's owner has to be known.
    """

    configuration: SchedulerConfiguration
    kinds: frozenset[WhenUnsatisfiable] = HARD_DEFAULTS
    """Hard ones always matter: the scheduler places no pod against one. Soft ones matter to whoever restores such
    constraints, and there are some in every cluster (KEP 1258)."""
    workloads_complete: bool = False
    """See `default_selector`."""

    @property
    def exist(self) -> bool:
        """Whether any pod may get one of those kinds."""
        given = (each for profile in self.configuration.profiles.values() for each in profile.default_constraints)
        return any(each.when_unsatisfiable in self.kinds for each in given)

    def of(self, spec: PodSpec) -> tuple[TopologySpreadConstraint, ...]:
        """Return those that pods of a spec get, without selectors; none if they have constraints of their own."""
        if spec.topology_spread_constraints:
            return ()
        profile = self.configuration.profiles.get(spec.scheduler_name)
        if profile is None or "PodTopologySpread" not in profile.plugins:
            return ()
        return tuple(each for each in profile.default_constraints if each.when_unsatisfiable in self.kinds)

    def keys_of(self, pod: Pod, snapshot: ClusterSnapshot) -> tuple[GroupKey, ...]:
        """Return the groups of a pod without constraints of its own; none as long as the selector is not known."""
        constraints = self.of(pod.spec)
        if not constraints:
            return ()
        selector = default_selector(pod, snapshot, workloads_complete=self.workloads_complete)
        if isinstance(selector, Unknown) or selector.matches_everything:
            return ()
        # The built-in ones are the only ones that don't ask a node to have the keys of all of them.
        each_alone = self.configuration.profiles[pod.spec.scheduler_name].system_defaults
        return tuple(
            _key(pod.namespace, pod.spec, each, selector, [each] if each_alone else constraints) for each in constraints
        )


def own_keys(namespace: str, template: Template) -> tuple[GroupKey, ...]:
    """Return the group of each of the topology spread constraints that pods of a template have, in their order."""
    own = template.spec.topology_spread_constraints
    return tuple(_key(namespace, template.spec, each, effective_selector(each, template.labels), own) for each in own)


def _key(
    namespace: str,
    spec: PodSpec,
    constraint: TopologySpreadConstraint,
    selector: Selector,
    together: Iterable[TopologySpreadConstraint],
) -> GroupKey:
    """Return the group of a constraint.

    Args:
        namespace: of the pods.
        spec: of the pods.
        constraint: that they have.
        selector: the effective one.
        together: the constraints whose topology keys a node has to have to count.
    """
    return GroupKey(
        namespace=namespace,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        selector=selector,
        eligibility=eligibility_of(spec, constraint, required_keys(together, constraint.when_unsatisfiable)),
    )
