"""The profiles of a DeschedulerPolicy of v1alpha2: their settings for topology spread, and their other content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from respread.api.structures import shown
from respread.cli.migrate.descheduler import (
    EVICTOR,
    SPREAD,
    DefaultEvictorArgs,
    DeschedulerProfile,
    PluginConfig,
    Plugins,
    PluginSet,
    SpreadArgs,
)
from respread.cli.migrate.lines import Remark
from respread.cli.migrate.other_plugins import advice
from respread.cli.migrate.place import SourcePlace
from respread.cli.migrate.reading import Reading, Sourced, places_of

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
    enabled = list(_enabled(profile.plugins or Plugins(), place.at("plugins"), reading))
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
    remarks += _about_disabled(profile.plugins or Plugins(), place.at("plugins"))
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


def _about_disabled(plugins: Plugins, place: SourcePlace) -> Iterator[Remark]:
    for field, at in places_of(plugins, place).items():
        if getattr(plugins, field).disabled:
            yield Remark((at.at("disabled"),), "descheduler does not read this: what is not enabled is off.")
