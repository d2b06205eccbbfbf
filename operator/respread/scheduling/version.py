"""What schedulers of some versions do differently from what they should."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from respread.scheduling.configuration import SchedulerConfiguration

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_FIRST_TO_KEEP_SELECTORS: Final = (1, 34, 0)
_LAST_KNOWN_TO_KEEP_SELECTORS: Final = (1, 36, 3)


def keeps_namespace_selectors(version: str) -> bool | None:
    """Tell whether a scheduler keeps the namespace selectors that it has resolved (kubernetes#141526).

    Args:
        version: as the API server's `/version` has it in `gitVersion`, such as `v1.36.3` or `v1.36.3-gke.100`.

    Returns:
        None where it is not known: the version can't be read, or is one in which the bug may have been mended.
    """
    found = _VERSION.match(version)
    if found is None:
        return None
    numbers = tuple(map(int, found.groups()))
    if numbers < _FIRST_TO_KEEP_SELECTORS:
        return False
    return True if numbers <= _LAST_KNOWN_TO_KEEP_SELECTORS else None


def of_version(configuration: SchedulerConfiguration, version: str) -> SchedulerConfiguration:
    """Return a configuration with the quirks that schedulers of a version have.

    Args:
        configuration: of the cluster's schedulers.
        version: of the cluster, empty if it is not known. Schedulers have the same for all but the time of an upgrade.
    """
    quirk = keeps_namespace_selectors(version)
    if configuration.keeps_namespace_selectors == quirk:
        return configuration
    return msgspec.structs.replace(configuration, keeps_namespace_selectors=quirk)
