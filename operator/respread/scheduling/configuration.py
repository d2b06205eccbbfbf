"""How a cluster's scheduler is configured: the parts of a KubeSchedulerConfiguration that filters depend on.

The API does not expose this configuration. It is a file of the scheduler, and therefore a setting of Respread. The
selectors of default constraints are not in it: they are derived as by `DefaultSelector` of the plugin helper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import yaml
from immutables import Map

from respread.api.json_documents import decode_map
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Workload
from respread.cluster.pod import NodeSelector, Pod, TopologySpreadConstraint
from respread.cluster.selectors import Selector, SelectorError, compile_selector, requirement, selector_of_labels
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.verdict import PLUGINS, Plugin, Unknown

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_FIRST_TO_KEEP_SELECTORS: Final = (1, 34, 0)
_LAST_KNOWN_TO_KEEP_SELECTORS: Final = (1, 36, 3)


def keeps_namespace_selectors(version: str) -> bool | None:
    """Return whether a scheduler keeps the namespace selectors that it has resolved (kubernetes#141526).

    The version is `gitVersion` from the API server's `/version`, such as `v1.36.3` or `v1.36.3-gke.100`.

    Returns:
        None if unknown: the version can't be parsed, or the bug may be fixed in it.
    """
    found = _VERSION.match(version)
    if found is None:
        return None
    numbers = tuple(map(int, found.groups()))
    if numbers < _FIRST_TO_KEEP_SELECTORS:
        return False
    return True if numbers <= _LAST_KNOWN_TO_KEEP_SELECTORS else None


def of_version(configuration: SchedulerConfiguration, version: str) -> SchedulerConfiguration:
    """Return a configuration with the bugs of the schedulers of a version.

    The version is that of the cluster; empty if unknown. The schedulers have the same, except during an upgrade.
    """
    quirk = keeps_namespace_selectors(version)
    if configuration.keeps_namespace_selectors == quirk:
        return configuration
    return msgspec.structs.replace(configuration, keeps_namespace_selectors=quirk)


API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
DEFAULT_SCHEDULER: Final = "default-scheduler"

SYSTEM_DEFAULT_CONSTRAINTS: Final = (
    TopologySpreadConstraint(3, "kubernetes.io/hostname", "ScheduleAnyway"),
    TopologySpreadConstraint(5, "topology.kubernetes.io/zone", "ScheduleAnyway"),
)
"""The constraints that the scheduler adds to pods without constraints of their own by default (KEP 1258)."""

_OTHER_PLUGINS: Final = frozenset(
    {
        "DefaultBinder",
        "DefaultPreemption",
        "DynamicResources",
        "GangScheduling",
        "ImageLocality",
        "NodeDeclaredFeatures",
        "NodeResourcesBalancedAllocation",
        "PodGroupPodsCount",
        "PrioritySort",
        "SchedulingGates",
    }
)
"""Plugins of the scheduler that filter nothing, or only pods that are answered with `Unknown` anyway."""


_T = TypeVar("_T")


class ConfigurationError(ValueError):
    """A configuration that a scheduler would reject at its start. The message names the field."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one scheduler, selected by its name."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = SYSTEM_DEFAULT_CONSTRAINTS
    """For pods without constraints of their own. They have no selectors, because these come from Services and
    owners."""
    system_defaults: bool = True
    """Whether these are the built-in ones, which don't require nodes to have all topology keys."""
    added_affinity: NodeSelector | None = None
    """What nodes must satisfy in addition to each pod's own affinity."""
    plugins: frozenset[Plugin] = frozenset(PLUGINS)
    """The enabled filters."""
    ignored_resources: frozenset[str] = frozenset()
    """Extended resources that NodeResourcesFit ignores."""
    ignored_resource_groups: frozenset[str] = frozenset()
    """Prefixes of such resources, such as `example.com`."""
    unknown: tuple[str, ...] = ()
    """Parts of the profile that may filter nodes by rules that Respread does not know."""

    def ignores_resource(self, name: str) -> bool:
        """Return whether NodeResourcesFit ignores an extended resource."""
        prefix, slash, _ = name.partition("/")
        if not slash or prefix == "kubernetes.io" or prefix.endswith(".kubernetes.io"):
            return False
        return name in self.ignored_resources or prefix in self.ignored_resource_groups


class SchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The schedulers of a cluster."""

    profiles: Map[str, Profile] = Map({DEFAULT_SCHEDULER: Profile()})
    """By scheduler name."""
    keeps_namespace_selectors: bool | None = False
    """The bug of 1.34.0 to 1.36.3 (kubernetes#141526): in the pod's own affinity terms, a namespaceSelector with only
    NotIn and DoesNotExist requirements matches every namespace. None: unknown."""


class _Reference(msgspec.Struct):
    name: str = ""


class _PluginSet(msgspec.Struct):
    enabled: list[_Reference] | None = None
    disabled: list[_Reference] | None = None


class _Plugins(msgspec.Struct, rename="camel"):
    multi_point: _PluginSet = msgspec.field(default_factory=_PluginSet)
    pre_filter: _PluginSet = msgspec.field(default_factory=_PluginSet)
    filter: _PluginSet = msgspec.field(default_factory=_PluginSet)


class _PluginConfig(msgspec.Struct):
    name: str = ""
    args: dict[str, Any] | None = None


class _Profile(msgspec.Struct, rename="camel"):
    scheduler_name: str = DEFAULT_SCHEDULER
    plugins: _Plugins | None = None
    plugin_config: list[_PluginConfig] | None = None


class _Extender(msgspec.Struct, rename="camel"):
    url_prefix: str = ""
    filter_verb: str = ""


class _Configuration(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    profiles: list[_Profile] | None = None
    extenders: list[_Extender] | None = None


class _SpreadArgs(msgspec.Struct, rename="camel"):
    default_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    defaulting_type: Literal["System", "List", ""] = ""


class _AddedAffinity(msgspec.Struct):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _AffinityArgs(msgspec.Struct, rename="camel"):
    added_affinity: _AddedAffinity | None = None


class _FitArgs(msgspec.Struct, rename="camel"):
    ignored_resources: list[str] | None = None
    ignored_resource_groups: list[str] | None = None


def read_configuration(text: str) -> SchedulerConfiguration:
    """Read a KubeSchedulerConfiguration.

    Raises:
        ConfigurationError: the text is not such a configuration, or the scheduler would reject it. Fields that Respread
            does not use are not checked.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"the scheduler's configuration is not YAML: {error}") from error
    wire = _converted(document, "", _Configuration)
    if wire.kind != "KubeSchedulerConfiguration" or wire.api_version != API_VERSION:
        raise ConfigurationError(
            f"kind and apiVersion must be KubeSchedulerConfiguration and {API_VERSION}, not {wire.kind!r} and "
            f"{wire.api_version!r}"
        )
    extenders = tuple(f"extender {each.url_prefix}" for each in wire.extenders or () if each.filter_verb)
    profiles: dict[str, Profile] = {}
    for position, each in enumerate(wire.profiles or [_Profile()]):
        if each.scheduler_name in profiles:
            raise ConfigurationError(f"profiles[{position}].schedulerName: {each.scheduler_name!r} is there twice")
        profiles[each.scheduler_name] = _profile(each, f"profiles[{position}]", extenders)
    return SchedulerConfiguration(profiles=Map(profiles))


def _profile(wire: _Profile, path: str, extenders: tuple[str, ...]) -> Profile:
    arguments: dict[str, tuple[Mapping[str, Any], str]] = {}
    for position, each in enumerate(wire.plugin_config or ()):
        at = f"{path}.pluginConfig[{position}]"
        if each.name in arguments:
            raise ConfigurationError(f"{at}.name: {each.name!r} is configured twice")
        arguments[each.name] = (each.args or {}, f"{at}.args")
    system_defaults, constraints = _spread_defaults(*arguments.get("PodTopologySpread", ({}, "")))
    affinity = _converted(*arguments.get("NodeAffinity", ({}, "")), _AffinityArgs).added_affinity
    fit = _converted(*arguments.get("NodeResourcesFit", ({}, "")), _FitArgs)
    plugins, unknown = _plugins(wire.plugins or _Plugins())
    return Profile(
        default_constraints=constraints,
        system_defaults=system_defaults,
        added_affinity=None if affinity is None else affinity.required,
        plugins=plugins,
        ignored_resources=frozenset(fit.ignored_resources or ()),
        ignored_resource_groups=frozenset(fit.ignored_resource_groups or ()),
        unknown=unknown + extenders,
    )


def _spread_defaults(arguments: Mapping[str, Any], path: str) -> tuple[bool, tuple[TopologySpreadConstraint, ...]]:
    spread = _converted(arguments, path, _SpreadArgs)
    constraints = spread.default_constraints or ()
    if spread.defaulting_type != "List":
        if constraints:
            raise ConfigurationError(f"{path}.defaultConstraints: there may be none unless defaultingType is List")
        return True, SYSTEM_DEFAULT_CONSTRAINTS
    seen: set[tuple[str, str]] = set()
    for position, constraint in enumerate(constraints):
        at = f"{path}.defaultConstraints[{position}]"
        _check(constraint, at)
        if (constraint.topology_key, constraint.when_unsatisfiable) in seen:
            raise ConfigurationError(f"{at}: topologyKey and whenUnsatisfiable are the same as of another constraint")
        seen.add((constraint.topology_key, constraint.when_unsatisfiable))
    return False, constraints


def _check(constraint: TopologySpreadConstraint, path: str) -> None:
    if constraint.max_skew <= 0:
        raise ConfigurationError(f"{path}.maxSkew: must be more than 0, not {constraint.max_skew}")
    if constraint.label_selector is not None:
        raise ConfigurationError(f"{path}.labelSelector: there must be none, selectors come from Services and owners")
    try:
        requirement(constraint.topology_key, "Exists")
    except SelectorError as error:
        raise ConfigurationError(f"{path}.topologyKey: {error}") from error


def _plugins(wire: _Plugins) -> tuple[frozenset[Plugin], tuple[str, ...]]:
    enabled = _after(wire.filter, _after(wire.multi_point, PLUGINS))
    foreign = [
        name
        for name in (*enabled, *_names(wire.pre_filter.enabled))
        if name not in PLUGINS and name not in _OTHER_PLUGINS
    ]
    unknown = [f"plugin {name}" for name in foreign]
    unknown.extend(f"preFilter without {name}" for name in _names(wire.pre_filter.disabled))
    return frozenset(plugin for plugin in PLUGINS if plugin in enabled), tuple(dict.fromkeys(unknown))


def _after(change: _PluginSet, before: Iterable[str]) -> list[str]:
    disabled = set(_names(change.disabled))
    kept = [] if "*" in disabled else [name for name in before if name not in disabled]
    return [*kept, *_names(change.enabled)]


def _names(references: Iterable[_Reference] | None) -> list[str]:
    return [each.name for each in references or ()]


def _converted(document: object, path: str, wanted: type[_T]) -> _T:
    try:
        return msgspec.convert(document, wanted, dec_hook=decode_map)
    except msgspec.ValidationError as error:
        message, at, inner = str(error).rpartition(" - at `$")
        field = f"{path}{inner.rstrip('`')}" if at else path
        raise ConfigurationError(f"{field.removeprefix('.') or 'the document'}: {message or error}") from error


SELECTING: Final = ("services", "replica_sets", "stateful_sets", "replication_controllers")
"""The parts of a snapshot from which the selectors of default constraints are derived."""
_RESOURCES: Final = {
    ("v1", "ReplicationController"): "replicationcontrollers",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
}
"""The owners whose selectors the scheduler uses, by apiVersion and kind."""


class SelectingOwner(NamedTuple):
    """The owner of pods whose selector is a part of the selector of their default constraints."""

    resource: str
    """Its plural name."""
    kind: str
    key: ObjectKey
    uid: str
    """The UID in the pods' owner reference. The scheduler only uses the name."""


def selecting_owner(pod: Pod) -> SelectingOwner | None:
    """Return the owner whose selector a pod's default constraints use, if the pod has one of such a kind."""
    owner = pod.controller
    resource = None if owner is None else _RESOURCES.get((owner.api_version, owner.kind))
    if owner is None or resource is None:
        return None
    return SelectingOwner(resource, owner.kind, ObjectKey(pod.namespace, owner.name), owner.uid)


def default_selector(pod: Pod, snapshot: ClusterSnapshot) -> Selector | Unknown:
    """Return the selector of a pod's default constraints, from its Services and its owner.

    It combines the selectors of all Services that select the pod with the selector of the ReplicaSet, StatefulSet or
    ReplicationController that controls it. If there are none, it is empty, and the pod has no default constraints.
    The selector of an owner that is not in the snapshot is unknown, and so is the result.
    """
    labels: dict[str, str] = {}
    for service in snapshot.services.get(pod.namespace, Map()).values():
        if service.selector and selector_of_labels(service.selector).matches(pod.labels):
            labels.update(service.selector)
    owner = selecting_owner(pod)
    if owner is None:
        return selector_of_labels(Map(labels))
    workload = _workload(owner, snapshot)
    if workload is not None:
        return _with_workload(labels, workload, replaces=owner.kind == "ReplicationController")
    return Unknown(
        "PodTopologySpread defaults",
        f"which topology spread constraints the scheduler gives a pod without any depends on the selector of "
        f"{owner.kind} {owner.key.name}, which is not known",
    )


def is_known(owner: SelectingOwner, snapshot: ClusterSnapshot) -> bool:
    """Whether a snapshot contains an owner of pods."""
    return _workload(owner, snapshot) is not None


def selector_basis(pod: Pod, snapshot: ClusterSnapshot) -> tuple[object, object]:
    """Return the objects from which a pod's default selector is derived.

    While they are the same, so is the selector.
    """
    owner = selecting_owner(pod)
    return snapshot.services.get(pod.namespace), None if owner is None else _workload(owner, snapshot)


def _workload(owner: SelectingOwner, snapshot: ClusterSnapshot) -> Workload | None:
    match owner.resource:
        case "replicasets":
            return snapshot.replica_sets.get(owner.key)
        case "statefulsets":
            return snapshot.stateful_sets.get(owner.key)
        case _:
            return snapshot.replication_controllers.get(owner.key)


def _with_workload(labels: dict[str, str], workload: Workload, *, replaces: bool) -> Selector:
    """Add the selector of a workload.

    The selector of a ReplicationController replaces Services' values for the same labels.
    """
    if workload.selector is None:
        return selector_of_labels(Map(labels))
    if replaces:
        return selector_of_labels(Map({**labels, **workload.selector.match_labels}))
    return selector_of_labels(Map(labels)).with_requirements(compile_selector(workload.selector).requirements)
