"""Reads a cluster from its API server: raw pages of LISTs, decoded as in the operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Final

from respread.api.policy import GROUP
from respread.cluster.decode.decoder import Kind
from respread.cluster.objects import DecodeError
from respread.cluster.stores import full_name
from respread.program.command_line import CommandError
from respread_cli.read.cluster_view import NOT_INSTALLED, Gathering, ReadCluster, WantedKind
from respread_cli.read.connection import Connection, ListExpiredError, UnreadableError

_PARALLEL: Final = 6
_MOST_RELISTS: Final = 5
_MOST_FAULTS_SHOWN: Final = 3


def read_live(connection: Connection, wanted: Collection[WantedKind]) -> ReadCluster:
    """Read a cluster.

    Raises:
        CommandError: the API server can't be reached, or something that is required can't be read.
    """
    gathering = Gathering()
    notes: list[str] = []
    left_out: set[str] = set()
    begun = datetime.now(UTC)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        version = pool.submit(connection.version)
        for each, first_pages in [(each, pool.submit(connection.pages, each)) for each in wanted]:
            try:
                faults = _take(gathering, each, first_pages.result, connection)
            except UnreadableError as error:
                notes.append(note_unless_required(each, error))
                if not error.absent:
                    left_out.add(each.kind.resource)
            else:
                notes.extend(_faults(each.kind, faults))
    return gathering.view(
        time=begun,
        source=connection.endpoint.name,
        namespace=connection.endpoint.namespace,
        server_version=version.result(),
        left_out=left_out,
        notes=dict.fromkeys(notes),
    )


def _take(
    gathering: Gathering, wanted: WantedKind, begin: Callable[[], Iterator[bytes]], connection: Connection
) -> list[DecodeError]:
    """Read a whole list, which may have to begin again, and add it. Return what could not be read."""
    for _ in range(_MOST_RELISTS):
        try:
            objects, faults = gathering.decode_list(wanted.kind, begin())
        except ListExpiredError:
            begin = partial(connection.pages, wanted)
            continue
        gathering.by_kind[wanted.kind].replace(dict(objects), {each.key: each for each in faults})
        return faults
    raise CommandError(f"{full_name(wanted.kind)} could not be listed: the API server forgets lists before they end.")


class NotAllowedError(CommandError):
    """A kind that a command needs can't be read for lack of a permission. The message names the role that has it."""


def _role_for(wanted: WantedKind) -> str:
    """Return what to ask for, to be allowed to read a kind."""
    if not wanted.kind.namespaced:
        return " Ask for the ClusterRole respread-cluster-view, which Respread installs, by a ClusterRoleBinding."
    if wanted.namespace is None:
        return (
            " If you may list them in one namespace, name it by -n. For all namespaces, ask for the ClusterRole view "
            "by a ClusterRoleBinding."
        )
    return f" Ask for the ClusterRole view by a RoleBinding in namespace {wanted.namespace}."


def note_unless_required(wanted: WantedKind, error: UnreadableError) -> str:
    """Return a note that a kind could not be read, if it is not required."""
    if error.absent and wanted.kind.group == GROUP:
        return NOT_INSTALLED
    if not wanted.required:
        return f"Left out: {error}."
    if error.absent:
        raise CommandError(f"{error}.") from error
    raise NotAllowedError(f"{error}.{_role_for(wanted)}") from error


def _faults(kind: Kind, faults: Collection[DecodeError]) -> Iterator[str]:
    shown = list(faults)[:_MOST_FAULTS_SHOWN]
    yield from (f"It can't be read in full: {fault}." for fault in shown)
    if len(faults) > len(shown):
        yield f"They can't be read in full: {len(faults) - len(shown)} more {full_name(kind)}."
