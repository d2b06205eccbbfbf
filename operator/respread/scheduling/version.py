"""Bugs of certain scheduler versions."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from respread.scheduling.configuration import SchedulerConfiguration

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_FIRST_TO_KEEP_SELECTORS: Final = (1, 34, 0)
_LAST_KNOWN_TO_KEEP_SELECTORS: Final = (1, 36, 3)


def keeps_namespace_selectors(version: str) -> bool | None:
    """Return whether a scheduler keeps the namespace selectors that it has resolved (kubernetes#141526).

    Args:
        version: `gitVersion` from the API server's `/version`, such as `v1.36.3` or `v1.36.3-gke.100`.

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

    Args:
        configuration: of the cluster's schedulers.
        version: of the cluster; empty if unknown. The schedulers have the same version, except during an upgrade.
    """
    quirk = keeps_namespace_selectors(version)
    if configuration.keeps_namespace_selectors == quirk:
        return configuration
    return msgspec.structs.replace(configuration, keeps_namespace_selectors=quirk)
