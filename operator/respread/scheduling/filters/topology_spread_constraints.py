"""The topology spread constraints that the scheduler applies to a pod: its own, or the scheduler's defaults."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.pod import NodeInclusionPolicy, Pod, TopologySpreadConstraint
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.configuration import Profile
from respread.scheduling.default_selector import default_selector
from respread.scheduling.filters.topology_spread import effective_selector
from respread.scheduling.verdict import Unknown


class SpreadConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint as applied to one pod."""

    topology_key: str
    max_skew: int
    min_domains: int
    """1 if the constraint has none."""
    node_affinity_policy: NodeInclusionPolicy
    node_taints_policy: NodeInclusionPolicy
    selector: Selector
    """The effective selector."""
    self_match: bool
    """Whether it matches the pod itself."""


class ConstraintsInForce(msgspec.Struct, frozen=True, kw_only=True):
    """All constraints that apply to one pod."""

    hard: tuple[SpreadConstraint, ...] = ()
    """DoNotSchedule."""
    soft: tuple[SpreadConstraint, ...] = ()
    """ScheduleAnyway."""
    soft_need_all_keys: bool = True
    """Whether scoring ignores nodes without one of the soft constraints' keys. False for the built-in default
    constraints."""
    hard_unknown: Unknown | None = None
    """Why the hard constraints are unknown, if they are."""


def constraints_in_force(pod: Pod, profile: Profile, snapshot: ClusterSnapshot) -> ConstraintsInForce:
    """Return the constraints that the scheduler applies to a pod.

    If the pod has one constraint of its own, of either kind, it gets no default constraints.

    Args:
        pod: the pod to be placed.
        profile: the profile of its scheduler.
        snapshot: the cluster.
    """
    own = pod.spec.topology_spread_constraints
    if own:
        selectors = [effective_selector(constraint, pod.labels) for constraint in own]
        return ConstraintsInForce(
            hard=_applied(pod, own, selectors, "DoNotSchedule"), soft=_applied(pod, own, selectors, "ScheduleAnyway")
        )
    defaults = profile.default_constraints
    if not defaults:
        return ConstraintsInForce(soft_need_all_keys=not profile.system_defaults)
    selector = default_selector(pod, snapshot)
    if isinstance(selector, Unknown):
        kinds = {each.when_unsatisfiable for each in defaults}
        return ConstraintsInForce(hard_unknown=selector if "DoNotSchedule" in kinds else None)
    if selector.matches_everything:
        return ConstraintsInForce(soft_need_all_keys=not profile.system_defaults)
    selectors = [selector] * len(defaults)
    return ConstraintsInForce(
        hard=_applied(pod, defaults, selectors, "DoNotSchedule"),
        soft=_applied(pod, defaults, selectors, "ScheduleAnyway"),
        soft_need_all_keys=not profile.system_defaults,
    )


def _applied(
    pod: Pod,
    constraints: Iterable[TopologySpreadConstraint],
    selectors: Iterable[Selector],
    when: WhenUnsatisfiable,
) -> tuple[SpreadConstraint, ...]:
    return tuple(
        SpreadConstraint(
            topology_key=constraint.topology_key,
            max_skew=constraint.max_skew,
            min_domains=constraint.min_domains or 1,
            node_affinity_policy=constraint.node_affinity_policy,
            node_taints_policy=constraint.node_taints_policy,
            selector=selector,
            self_match=selector.matches(pod.labels),
        )
        for constraint, selector in zip(constraints, selectors, strict=True)
        if constraint.when_unsatisfiable == when
    )
