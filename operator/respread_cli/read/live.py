"""Reads a cluster from its API server: raw pages of LISTs, decoded as in the operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec
import requests

from respread.api.nesting import decoded
from respread.api.policy import GROUP
from respread.cluster.decode.decoder import KINDS, Kind
from respread.cluster.errors import DecodeError
from respread.kube.credentials import CredentialsError
from respread.program.command_line import CommandError
from respread.stores.watched_kinds import UNFINISHED_PODS, full_name
from respread_cli.read.cluster_view import NOT_INSTALLED, Gathering, ReadCluster, WantedKind
from respread_cli.read.connection import Connection

PAGE_OBJECTS: Final = 500
TIMEOUT_SECONDS: Final = (10, 60)
"""To connect, and to wait for the next bytes of an answer."""
WATCH_SECONDS: Final = 45
"""How long a watch lasts before it is continued by the next one: less than the wait for the next bytes, so that a
watch without events is not considered broken."""
LINES_BYTES: Final = 64 * 1024
"""The most bytes of a watch to read at once. What has arrived is never held back for more."""
_PARALLEL: Final = 6
_MOST_RELISTS: Final = 5
_MOST_FAULTS_SHOWN: Final = 3


class UnreadableError(Exception):
    """A kind that the API server does not have, or does not allow us to read.

    The message is a sentence without its end.
    """

    def __init__(self, message: str, *, absent: bool) -> None:
        super().__init__(message)
        self.absent = absent


class ListExpiredError(Exception):
    """A list took so long that its continue token expired."""


class ApiReader:
    """Reads lists, page by page."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pages(self, wanted: WantedKind) -> Iterator[bytes]:
        """Return the pages of a list. The first one is requested now.

        Raises:
            CommandError: the API server can't be reached, or rejects our credentials; also while iterating.
            UnreadableError: this kind can't be read.
        """
        path = wanted.path
        first = self._get(wanted, path, "")
        return self._rest(wanted, path, first)

    def _rest(self, wanted: WantedKind, path: str, page: bytes) -> Iterator[bytes]:
        yield page
        while more := _continue_token(page):
            page = self._get(wanted, path, more)
            yield page

    def _get(self, wanted: WantedKind, path: str, more: str) -> bytes:
        parameters: dict[str, str | int] = {"limit": PAGE_OBJECTS}
        if wanted.kind == KINDS["pods"]:
            parameters["fieldSelector"] = UNFINISHED_PODS
        if more:
            parameters["continue"] = more
        response = self.get(path, parameters)
        if response.status_code == HTTPStatus.GONE and more:
            raise ListExpiredError
        if response.ok:
            return response.content
        raise self._refusal(wanted, response, "list")

    def _refusal(self, wanted: WantedKind, response: requests.Response, verb: str) -> UnreadableError | CommandError:
        name, said = full_name(wanted.kind), _message_of(response)
        if response.status_code == HTTPStatus.FORBIDDEN:
            return UnreadableError(f"you are not allowed to {verb} {name}: {said}", absent=False)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return UnreadableError(f"the API server has no {name} in version {wanted.kind.version}", absent=True)
        return CommandError(f"the API server at {self._connection.server} can't {verb} {name}: {said}.")

    def lines(self, wanted: WantedKind, version: str) -> Iterator[bytes]:
        """Return the events of a watch, each as JSON, as they arrive, until the API server ends the watch.

        The watch is requested now.

        Args:
            wanted: what to watch.
            version: the resourceVersion of a list or an event, after which the watch begins.

        Raises:
            CommandError: the API server can't be reached, or rejects our credentials; also while iterating.
            UnreadableError: this kind can't be watched.
            ListExpiredError: the version is too old.
        """
        parameters: dict[str, str | int] = {
            "watch": 1,
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": WATCH_SECONDS,
        }
        if wanted.kind == KINDS["pods"]:
            parameters["fieldSelector"] = UNFINISHED_PODS
        response = self.get(wanted.path, parameters, stream=True)
        if response.ok:
            return self._lines(response)
        with closing(response):
            if response.status_code == HTTPStatus.GONE:
                raise ListExpiredError
            raise self._refusal(wanted, response, "watch")

    def _lines(self, response: requests.Response) -> Iterator[bytes]:
        with closing(response):
            try:
                yield from response.iter_lines(chunk_size=LINES_BYTES)
            except (requests.exceptions.RequestException, OSError) as error:
                raise CommandError(
                    f"the connection to the API server at {self._connection.server} ({self._connection.name}) broke: "
                    f"{_innermost(error)}."
                ) from error

    def version(self) -> str:
        """Return the API server's version, such as `v1.36.3`; empty if it does not report one.

        Raises:
            CommandError: the API server can't be reached, or rejects our credentials.
        """
        response = self.get("/version")
        try:
            return msgspec.json.decode(response.content, type=_Version).git_version if response.ok else ""
        except msgspec.DecodeError:
            return ""

    def get(
        self,
        path: str,
        parameters: dict[str, str | int] | None = None,
        *,
        accept: str = "application/json",
        stream: bool = False,
    ) -> requests.Response:
        """Return the answer to a GET, unless the server can't be reached or rejects our credentials.

        Args:
            path: what to get.
            parameters: of the query.
            accept: the content type to ask for.
            stream: whether to read the body as it arrives.

        Raises:
            CommandError: there was no answer, or our credentials were rejected.
        """
        connection = self._connection
        try:
            response: requests.Response = connection.client.session.get(
                connection.server + path,
                params=parameters,
                headers={"Accept": accept},
                timeout=connection.timeout_seconds or TIMEOUT_SECONDS,
                stream=stream,
            )
        except requests.exceptions.SSLError as error:
            raise CommandError(
                f"the API server at {connection.server} ({connection.name}) is not who the kubeconfig says: "
                f"{_innermost(error)}."
            ) from error
        except requests.exceptions.RequestException as error:
            raise CommandError(
                f"the API server at {connection.server} ({connection.name}) can't be reached: {_innermost(error)}."
            ) from error
        except (CredentialsError, OSError) as error:  # of a plugin, or a token's file
            raise CommandError(f"the credentials of {connection.name} can't be used: {error}.") from error
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            raise CommandError(
                f"the API server at {connection.server} does not accept the credentials of {connection.name}: they may "
                "have expired; log in again."
            )
        return response


def read_live(connection: Connection, wanted: Collection[WantedKind]) -> ReadCluster:
    """Read a cluster.

    Args:
        connection: To its API server.
        wanted: What to read.

    Raises:
        CommandError: the API server can't be reached, or something that is required can't be read.
    """
    reader, gathering = ApiReader(connection), Gathering()
    notes: list[str] = []
    left_out: set[str] = set()
    begun = datetime.now(UTC)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        version = pool.submit(reader.version)
        for each, first_pages in [(each, pool.submit(reader.pages, each)) for each in wanted]:
            try:
                faults = _take(gathering, each, first_pages.result, partial(reader.pages, each))
            except UnreadableError as error:
                notes.append(note_unless_required(each, error))
                if not error.absent:
                    left_out.add(each.kind.resource)
            else:
                notes.extend(_faults(each.kind, faults))
    return gathering.view(
        time=begun,
        source=connection.name,
        namespace=connection.namespace,
        server_version=version.result(),
        left_out=left_out,
        notes=dict.fromkeys(notes),
    )


def _take(
    gathering: Gathering,
    wanted: WantedKind,
    begin: Callable[[], Iterator[bytes]],
    begin_again: Callable[[], Iterator[bytes]],
) -> list[DecodeError]:
    """Read a whole list and add it. Return what could not be read."""
    for _ in range(_MOST_RELISTS):
        try:
            objects, faults = gathering.decode_list(wanted.kind, begin())
        except ListExpiredError:
            begin = begin_again
            continue
        gathering.take(wanted.kind, objects)
        gathering.note_undecodable(wanted.kind, faults)
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


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _AnyList(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


_read_list: Final = msgspec.json.Decoder(_AnyList).decode


def _continue_token(page: bytes) -> str:
    try:
        return decoded(_read_list, page).metadata.continue_
    except msgspec.DecodeError:
        return ""  # The decoder of the page reports what is wrong with it.


def _message_of(response: requests.Response) -> str:
    """Return the message of an error answer: that of its Status, else the status line."""
    try:
        message = response.json().get("message")
    except (ValueError, AttributeError):
        message = None
    return message if isinstance(message, str) and message else f"{response.status_code} {response.reason}"


def _innermost(error: BaseException) -> str:
    """Return the innermost error of a chain, in its own words."""
    while True:
        inner = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(inner, BaseException) or inner is error:
            break
        error = inner
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return said or type(error).__name__
