"""PodTopologySpread: which pods and nodes count for a constraint, and which constraints the scheduler applies to a pod.

Both spread groups and views of the cluster use these rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.incremental import MOST_RESULTS, MOST_SMALL
from respread.cluster.meta import Labels
from respread.cluster.pod import NodeInclusionPolicy, Pod, TopologySpreadConstraint
from respread.cluster.selectors import Selector, compile_selector
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.configuration import Profile, default_selector
from respread.scheduling.verdict import Unknown


def effective_selector(constraint: TopologySpreadConstraint, labels: Labels) -> Selector:
    """Return the selector by which a constraint counts pods: its own, plus `matchLabelKeys` with the pod's values.

    A key that the pod does not have is ignored (KEP 3243). If the API server has already added the requirement to the
    selector (1.34 and later), it appears once. An absent selector stays absent and matches nothing.
    """
    wanted = tuple((key, labels[key]) for key in constraint.match_label_keys if key in labels)
    selector = compile_selector(constraint.label_selector)
    if not wanted:
        return selector
    is_small = selector.size + len(wanted) <= MOST_SMALL
    return _narrowed(selector, wanted) if is_small else selector.with_labels(wanted)


@lru_cache(maxsize=MOST_RESULTS)
def _narrowed(selector: Selector, labels: tuple[tuple[str, str], ...]) -> Selector:
    return selector.with_labels(labels)


def counts_as_pod(pod: Pod) -> bool:
    """Return whether a pod with matching labels counts on the node that it is bound to, if that node exists.

    Terminating and finished pods don't count. Readiness makes no difference, nor whether the pod has the constraint
    itself, nor its owner or scheduler (`countPodsMatchSelector`).
    """
    return bool(pod.node_name) and pod.deletion_timestamp is None and not pod.finished


def required_keys(constraints: Iterable[TopologySpreadConstraint], when: WhenUnsatisfiable) -> tuple[str, ...]:
    """Return the topology keys, sorted, that a node must have to count for a pod's constraints of one kind.

    Hard constraints require the keys of hard ones only, soft constraints those of soft ones.
    """
    return tuple(sorted({each.topology_key for each in constraints if each.when_unsatisfiable == when}))


def minimum_is_zero(domains: int, min_domains: int) -> bool:
    """Return whether the global minimum is 0 because there are fewer eligible domains than minDomains (KEP 3022)."""
    return domains < min_domains


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
    """
    own = pod.spec.topology_spread_constraints
    if own:
        selectors = [effective_selector(constraint, pod.labels) for constraint in own]
        return ConstraintsInForce(
            hard=_applied(pod, own, selectors, "DoNotSchedule"), soft=_applied(pod, own, selectors, "ScheduleAnyway")
        )
    if not (defaults := profile.default_constraints):
        return ConstraintsInForce()
    selector = default_selector(pod, snapshot)
    if isinstance(selector, Unknown):
        kinds = {each.when_unsatisfiable for each in defaults}
        return ConstraintsInForce(hard_unknown=selector if "DoNotSchedule" in kinds else None)
    if selector.matches_everything:
        return ConstraintsInForce()
    selectors = [selector] * len(defaults)
    return ConstraintsInForce(
        hard=_applied(pod, defaults, selectors, "DoNotSchedule"),
        soft=_applied(pod, defaults, selectors, "ScheduleAnyway"),
        soft_need_all_keys=not profile.system_defaults,
    )


def _applied(
    pod: Pod, constraints: Iterable[TopologySpreadConstraint], selectors: Iterable[Selector], when: WhenUnsatisfiable
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
