"""Kopf's discovery at its start: which groups, versions and resources the API server serves.

Kopf ends the process if any of these answers is refused, cut off or invalid, and never watches a kind that is missing
in them. An answer may lack a kind that the API server serves: its list of groups is updated later, and another API
server behind the same address may not know a new CustomResourceDefinition yet. This module decides which answers Kopf
may see. The session waits until the others are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import msgspec

CORE: Final = "/api"
GROUPS: Final = "/apis"
_LEAST_UNKNOWN: Final = 600
"""Status codes without a meaning in HTTP."""
_GROUP_VERSION: Final = re.compile("/apis/[^/]+/[^/]+")


def is_server_error(status_code: int) -> bool:
    """Whether Kopf tries again after an answer, as often as the settings say."""
    return HTTPStatus.INTERNAL_SERVER_ERROR <= status_code < _LEAST_UNKNOWN


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct, rename="camel"):
    name: str
    versions: list[_Version]
    preferred_version: _Version


class _Resource(msgspec.Struct, rename="camel"):
    name: str
    kind: str
    singular_name: str
    namespaced: bool
    verbs: list[str] | None = None


class _CoreVersions(msgspec.Struct):
    versions: list[str]

    def names(self) -> list[str]:
        return self.versions


class _Groups(msgspec.Struct):
    groups: list[_Group]

    def names(self) -> list[str]:
        return [f"{group.name}/{each.version}" for group in self.groups for each in group.versions]


class _Resources(msgspec.Struct):
    resources: list[_Resource]

    def names(self) -> list[str]:
        return [each.name for each in self.resources]


class Discovery:
    """Decides which answers to discovery are valid."""

    __slots__ = ("_needed", "_prefix")

    def __init__(self, watched_paths: Iterable[str], prefix: str = "") -> None:
        """Create it.

        Args:
            watched_paths: the paths of watched collections, such as `/apis/policy/v1/poddisruptionbudgets`.
            prefix: the prefix of each path on this API server, including all paths here.
        """
        self._prefix = prefix
        self._needed: dict[str, set[str]] = {prefix + CORE: set(), prefix + GROUPS: set()}
        """The documents that are needed, and the names that each must contain."""
        for path in watched_paths:
            version, _, resource = path.rpartition("/")
            self._needed.setdefault(version, set()).add(resource)
            root = CORE if version.startswith(f"{prefix}{CORE}/") else GROUPS
            self._needed[prefix + root].add(version.removeprefix(f"{prefix}{root}/"))

    def concerns(self, path: str) -> bool:
        """Whether a path belongs to discovery: `/api`, `/api/v1`, `/apis`, `/apis/GROUP/VERSION`."""
        return path in self._needed or _GROUP_VERSION.fullmatch(path.removeprefix(self._prefix)) is not None

    def passes(self, path: str, status_code: int) -> bool:
        """Whether Kopf can handle a refusal: it logs in again, tries again, or continues without a group."""
        if status_code == HTTPStatus.NOT_FOUND:
            return path not in self._needed
        return status_code == HTTPStatus.UNAUTHORIZED or is_server_error(status_code)

    def fault_of(self, path: str, body: bytes) -> str:
        """Return what is wrong with an answer, or an empty string if it is valid and complete."""
        read = {self._prefix + CORE: _CoreVersions, self._prefix + GROUPS: _Groups}.get(path, _Resources)
        try:
            found: _CoreVersions | _Groups | _Resources = msgspec.json.decode(body, type=read)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return str(error)
        missing = self._needed.get(path, set()).difference(found.names())
        return f"{', '.join(sorted(missing))} is missing" if missing else ""
