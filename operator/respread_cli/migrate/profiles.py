"""The profiles of a DeschedulerPolicy: their settings for topology spread, and their other content.

v1alpha1, which descheduler read until 0.30, has strategies instead of profiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from respread.api.fields import LabelSelector
from respread.api.structures import shown
from respread_cli.migrate.descheduler import (
    CRITICAL_PRIORITY,
    EVICTOR,
    SPREAD,
    DefaultEvictorArgs,
    DeschedulerPolicy,
    DeschedulerProfile,
    Flag,
    NamespaceLists,
    NotNegative,
    PluginConfig,
    Plugins,
    PluginSet,
    SpreadArgs,
    Threshold,
)
from respread_cli.migrate.reading import Reading, Remark, Sourced, SourcePlace, places_of

_ADVICE: Final = {
    "RemoveDuplicates": (
        "Respread restores the constraints that pods have and adds none. Give the workload a topologySpreadConstraint "
        "on kubernetes.io/hostname, which Respread then restores, or leave this plugin to descheduler."
    ),
    "LowNodeUtilization": (
        "Respread does not look at how full nodes are. Leave this plugin to descheduler; where it moves pods out of a "
        "domain against their constraint, the condition Oscillating of the policy says so."
    ),
    "HighNodeUtilization": (
        "Respread does not empty nodes. Leave this plugin to descheduler, or consolidation to the cluster's "
        "autoscaler; "
        "where it moves pods out of a domain against their constraint, the condition Oscillating of the policy says so."
    ),
    "RemovePodsViolatingInterPodAntiAffinity": (
        "Respread evicts for topology spread only, and never to where anti-affinity would be broken. Leave this plugin "
        "to descheduler."
    ),
    "RemovePodsViolatingNodeAffinity": (
        "Respread evicts for topology spread only, and places replacements by their node affinity. Leave this plugin "
        "to descheduler."
    ),
    "RemovePodsViolatingNodeTaints": (
        "Respread evicts for topology spread only. Leave this plugin to descheduler; a taint with the effect NoExecute "
        "needs neither."
    ),
    "RemovePodsHavingTooManyRestarts": (
        "Respread evicts for topology spread only, whatever a pod's restarts. Leave this plugin to descheduler."
    ),
    "PodLifeTime": (
        "Respread evicts for topology spread only, whatever a pod's age or phase. Leave this plugin to descheduler."
    ),
    "RemoveFailedPods": (
        "Respread evicts for topology spread only, and pods that have failed count for nothing there. Leave this "
        "plugin to descheduler."
    ),
}
"""By the plugins of descheduler 0.36. In v1alpha1 they are called strategies and have the same names."""


def advice(plugin: str) -> str:
    """Return that no field of our policies corresponds to a plugin, why, and what to do."""
    known = _ADVICE.get(
        plugin, "descheduler 0.36 has no such plugin; if it is one of your own, leave it to descheduler."
    )
    return f"{plugin} has no counterpart. {known}"


_STRATEGY_POINTS: Final = frozenset({"balance", "deschedule"})
_FILTER_POINTS: Final = frozenset({"filter", "preevictionfilter", "evict"})


class ProfileParts(NamedTuple):
    """A profile, whichever version of the API says it."""

    name: str
    place: SourcePlace
    evictor: Sourced[DefaultEvictorArgs]
    spread: Sourced[SpreadArgs] | None
    """None: it does not restore topology spread."""
    remarks: tuple[Remark, ...]
    """Of everything in it that is neither."""


def read_profile(profile: DeschedulerProfile, place: SourcePlace, reading: Reading) -> ProfileParts:
    """Split a profile by its plugins."""
    configs, remarks = _configs(profile, place.at("pluginConfig"), reading)
    plugins = profile.plugins or Plugins()
    enabled = list(_enabled(plugins, place.at("plugins"), reading))
    others: dict[str, list[SourcePlace]] = {}
    spread_at: SourcePlace | None = None
    for name, point, at in enabled:
        if name == SPREAD and point == "balance":
            spread_at = at
        elif name == SPREAD:
            reading.mistake(at, f"{SPREAD} is a plugin of the extension point balance: name it there")
        elif point in _STRATEGY_POINTS:
            others.setdefault(name, []).append(at)
        else:
            remarks += _about_other_points(name, point, at)
    for name, places in others.items():
        if name in configs:
            places.append(configs[name][1])
        remarks.append(Remark(tuple(places), advice(name)))
    for name, (_, at) in configs.items():
        if name not in others and name != EVICTOR and not (name == SPREAD and spread_at):
            remarks.append(Remark((at,), f"{name} is not enabled, so there is nothing to replace."))
    remarks += [
        Remark((at.at("disabled"),), "descheduler does not read this: what is not enabled is off.")
        for field, at in places_of(plugins, place.at("plugins")).items()
        if getattr(plugins, field).disabled
    ]
    return ProfileParts(
        profile.name,
        place,
        _args(DefaultEvictorArgs, configs.get(EVICTOR), reading),
        _args(SpreadArgs, configs.get(SPREAD), reading) if spread_at else None,
        tuple(remarks),
    )


def _configs(
    profile: DeschedulerProfile, place: SourcePlace, reading: Reading
) -> tuple[dict[str, tuple[PluginConfig, SourcePlace]], list[Remark]]:
    """Return the arguments of each plugin, and remarks about others."""
    configs: dict[str, tuple[PluginConfig, SourcePlace]] = {}
    remarks: list[Remark] = []
    for index, config in enumerate(profile.plugin_config or ()):
        at = place.item(index)
        if not config.name:
            reading.mistake(at.at("name"), "is required: the plugin that the arguments are for")
        elif config.name in configs:
            remarks.append(Remark((at,), f"{config.name} is configured above already, and descheduler reads that."))
        else:
            configs[config.name] = (config, at)
    return configs, remarks


def _args(kind: type[Any], configured: tuple[PluginConfig, SourcePlace] | None, reading: Reading) -> Sourced[Any]:
    if configured is None:
        return Sourced(kind(), {})
    config, at = configured
    return reading.sourced(kind, config.args, at.at("args"))


def _enabled(plugins: Plugins, place: SourcePlace, reading: Reading) -> Iterator[tuple[str, str, SourcePlace]]:
    """Yield the name of each plugin that is enabled, its extension point, and where that is said."""
    for field, at in places_of(plugins, place).items():
        plugin_set: PluginSet = getattr(plugins, field)
        point = at.path.rpartition(".")[2]
        for index, item in enumerate(plugin_set.enabled or ()):
            where = at.at("enabled").item(index)
            name = item.get("name") if isinstance(item, Mapping) else item
            if isinstance(name, str) and name:
                yield name, point, where
            else:
                reading.mistake(where, f"must be the name of a plugin, not {shown(item)}")


def _about_other_points(name: str, point: str, at: SourcePlace) -> Iterator[Remark]:
    if point not in _FILTER_POINTS:
        yield Remark((at,), f"Respread orders pods by its plan; what {name} does about their order has no field.")
    elif name != EVICTOR:
        yield Remark(
            (at,),
            f"Respread has no filters of one's own. Say what {name} protects by podSelector, or by the annotation "
            "respread.dev/evict: never on the pods.",
            caution=True,
        )


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
    evict_failed_bare_pods: Flag | None = None
    evict_local_storage_pods: Flag | None = None
    evict_daemon_set_pods: Flag | None = None
    evict_system_critical_pods: Flag | None = None
    ignore_pvc_pods: Flag | None = None
    max_no_of_pods_to_evict_per_node: NotNegative | None = None
    max_no_of_pods_to_evict_per_namespace: NotNegative | None = None


class Strategy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A strategy, whichever it is."""

    enabled: Flag | None = None
    weight: int | None = None
    params: Any = None


class SpreadParams(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Those parameters that RemovePodsViolatingTopologySpreadConstraint reads."""

    include_soft_constraints: Flag | None = None
    namespaces: NamespaceLists | None = None
    label_selector: LabelSelector | None = None
    threshold_priority: Annotated[int, Meta(ge=-(2**31), le=CRITICAL_PRIORITY)] | None = None
    threshold_priority_class_name: str | None = None
    node_fit: Flag | None = None


def read_v1alpha1(
    document: Mapping[str, Any], place: SourcePlace, reading: Reading
) -> tuple[Sourced[DeschedulerPolicy], ProfileParts]:
    """Read a policy as descheduler does: a strategy is a profile, and all of them share one DefaultEvictor.

    The result has the terms of v1alpha2: what holds for the whole policy, and its profile.
    """
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
    common_places = {field: at for field, at in places.items() if field in _COMMON_FIELDS}
    return Sourced(DeschedulerPolicy(**common), common_places), profile


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
