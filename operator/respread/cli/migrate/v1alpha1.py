"""A DeschedulerPolicy of v1alpha1, which descheduler read until 0.30: strategies instead of profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from respread.api.fields import expects
from respread.api.label_selector import LabelSelector
from respread.cli.migrate.descheduler import (
    CRITICAL_PRIORITY,
    SPREAD,
    DefaultEvictorArgs,
    DeschedulerPolicy,
    NamespaceLists,
    SpreadArgs,
    Threshold,
)
from respread.cli.migrate.lines import Remark
from respread.cli.migrate.other_plugins import advice
from respread.cli.migrate.place import SourcePlace
from respread.cli.migrate.profiles import ProfileParts
from respread.cli.migrate.reading import Reading, Sourced, places_of

_Flag = Annotated[bool, Meta(extra=expects("true or false"))]
_Count = Annotated[int, Meta(ge=0)]
_EVICTOR_FIELDS: Final = (
    "evict_local_storage_pods",
    "evict_daemon_set_pods",
    "evict_system_critical_pods",
    "evict_failed_bare_pods",
    "ignore_pvc_pods",
)
_PARAMS: Final = {
    "node_fit": "node_fit",
    "threshold_priority": "priority_threshold",
    "threshold_priority_class_name": "priority_threshold",
}
"""The parameters of a strategy that are arguments of the DefaultEvictor in v1alpha2."""
_COMMON_FIELDS: Final = ("node_selector", "max_no_of_pods_to_evict_per_node", "max_no_of_pods_to_evict_per_namespace")


class V1alpha1Policy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole policy. Fields with the same names as in v1alpha2 have the same meaning."""

    api_version: str | None = None
    kind: str | None = None
    metadata: Any = None
    strategies: Any = None
    node_selector: str | None = None
    evict_failed_bare_pods: _Flag | None = None
    evict_local_storage_pods: _Flag | None = None
    evict_daemon_set_pods: _Flag | None = None
    evict_system_critical_pods: _Flag | None = None
    ignore_pvc_pods: _Flag | None = None
    max_no_of_pods_to_evict_per_node: _Count | None = None
    max_no_of_pods_to_evict_per_namespace: _Count | None = None


class Strategy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A strategy, whichever it is."""

    enabled: _Flag | None = None
    weight: int | None = None
    params: Any = None


class SpreadParams(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Those parameters that RemovePodsViolatingTopologySpreadConstraint reads."""

    include_soft_constraints: _Flag | None = None
    namespaces: NamespaceLists | None = None
    label_selector: LabelSelector | None = None
    threshold_priority: Annotated[int, Meta(ge=-(2**31), le=CRITICAL_PRIORITY)] | None = None
    threshold_priority_class_name: str | None = None
    node_fit: _Flag | None = None


class PolicyRead(NamedTuple):
    """A policy in the terms of v1alpha2."""

    common: Sourced[DeschedulerPolicy]
    """What holds for all of it."""
    profiles: tuple[ProfileParts, ...]


def read(document: Mapping[str, Any], place: SourcePlace, reading: Reading) -> PolicyRead:
    """Read a policy as descheduler does: a strategy is a profile, and all of them share one DefaultEvictor."""
    policy, places = reading.sourced(V1alpha1Policy, document, place)
    common = {field: getattr(policy, field) for field in _COMMON_FIELDS}
    strategies = reading.mapping(policy.strategies, place.at("strategies"))
    remarks: list[Remark] = []
    found: Strategy | None = None
    for name, value in strategies.items():
        at = place.at("strategies").at(name)
        strategy = reading.structure(Strategy, value, at)
        if not strategy.enabled:
            remarks.append(Remark((at,), f"{name} is not enabled, so there is nothing to replace."))
        elif name == SPREAD:
            found = strategy
        else:
            remarks.append(Remark((at,), advice(name)))
    spread = place.at("strategies").at(SPREAD)
    if found and found.weight is not None:
        remarks.append(Remark((spread.at("weight"),), "descheduler does not read it either."))
    evictor = {field: getattr(policy, field) for field in _EVICTOR_FIELDS}
    params, param_places = reading.sourced(SpreadParams, found.params if found else None, spread.at("params"))
    threshold = _threshold(params, spread.at("params"), reading)
    profile = ProfileParts(
        name="",
        place=spread,
        evictor=Sourced(
            DefaultEvictorArgs(**evictor, node_fit=params.node_fit, priority_threshold=threshold),
            {
                **{field: places[field] for field in _EVICTOR_FIELDS if field in places},
                **{_PARAMS[field]: at for field, at in param_places.items() if field in _PARAMS},
            },
        ),
        spread=_spread(params, spread.at("params")) if found else None,
        remarks=tuple(remarks),
    )
    return PolicyRead(
        Sourced(DeschedulerPolicy(**common), {field: at for field, at in places.items() if field in _COMMON_FIELDS}),
        (profile,),
    )


def _threshold(params: SpreadParams, place: SourcePlace, reading: Reading) -> Threshold | None:
    name, value = params.threshold_priority_class_name, params.threshold_priority
    if name and value is not None:
        reading.mistake(place, "set either thresholdPriority or thresholdPriorityClassName, not both")
        return None
    return None if name is None and value is None else Threshold(name=name, value=value)


def _spread(params: SpreadParams, place: SourcePlace) -> Sourced[SpreadArgs]:
    args = SpreadArgs(
        namespaces=params.namespaces,
        label_selector=params.label_selector,
        include_soft_constraints=params.include_soft_constraints,
    )
    return Sourced(args, places_of(args, place))
