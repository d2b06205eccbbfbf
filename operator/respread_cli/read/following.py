"""Follows a cluster: lists each kind, then watches it. The decoders and stores are those of a single reading.

A thread for each kind waits for the API server and hands over what arrives unchanged. `FollowedCluster.take` decodes it
in the thread of its caller, so that nothing else needs a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

import msgspec

from respread.api.json_documents import decoded
from respread.cluster.decode.decoder import Kind
from respread.cluster.decode.metadata import WireIdentity
from respread.cluster.objects import DecodeError
from respread.program.command_line import CommandError
from respread.timing import GrowingPause
from respread_cli.read.cluster_view import Gathering, ReadCluster, WantedKind
from respread_cli.read.connection import Connection, ListExpiredError, UnreadableError
from respread_cli.read.live import note_unless_required

PAUSE: Final = GrowingPause(first_seconds=0.5, longest_seconds=5.0)
"""Until an API server that did not answer is asked again."""
PAUSE_IF_REFUSED: Final = GrowingPause(first_seconds=1.0, longest_seconds=30.0)
"""Until a kind is requested again that the API server does not have, or does not allow us to read. An API server that
has just started gives both answers for a moment."""
_MOST_EVENTS_AT_ONCE: Final = 5_000
_GONE: Final = 410


class Lost(msgspec.Struct, frozen=True):
    """No connection to the API server."""

    since: datetime
    message: str


class FollowedCluster:
    """A cluster as its API server shows it now."""

    def __init__(self, connection: Connection, changed: Callable[[], None]) -> None:
        """Create it. Nothing is read yet. `changed` is called when something has arrived, in any thread."""
        self._connection = connection
        self._wanted: list[WantedKind] = []
        self._changed = changed
        self._arrivals: SimpleQueue[Callable[[], object]] = SimpleQueue()
        """What is to be done in the thread of `take`."""
        self._gathering = Gathering()
        self._unheard: set[WantedKind] = set()
        """Of which nothing has arrived yet."""
        self._notes: dict[WantedKind, str] = {}
        self._left_out: set[Kind] = set()
        self._lost: dict[WantedKind, Lost] = {}
        self._server_version = ""
        self._ended = threading.Event()

    def start(self, wanted: Iterable[WantedKind]) -> None:
        """Begin to read.

        Raises:
            CommandError: the API server can't be reached, or rejects our credentials.
        """
        self._server_version = self._connection.version()
        self.add(wanted)

    def add(self, wanted: Iterable[WantedKind]) -> bool:
        """Begin to read more, and return whether anything of it was not read yet."""
        added = [each for each in wanted if each not in self._wanted]
        self._wanted += added
        self._unheard.update(added)
        for each in added:
            name = f"follow-{each.kind.resource}"
            threading.Thread(target=self._follow, args=(each,), name=name, daemon=True).start()
        return bool(added)

    def close(self) -> None:
        """Stop reading. Threads end when their current request does, or with the process."""
        self._ended.set()

    @property
    def lost(self) -> Lost | None:
        """Since when there is no connection; None if there is one."""
        return min(self._lost.values(), key=lambda lost: lost.since, default=None)

    @property
    def complete(self) -> bool:
        """Whether every kind was read at least once, or is known to be unreadable."""
        return not self._unheard

    def take(self) -> ReadCluster | None:
        """Apply what has arrived, and return the cluster; None until it is complete.

        Raises:
            CommandError: a kind that is required can't be read, or the first list fails.
        """
        for _ in range(_MOST_EVENTS_AT_ONCE):
            try:
                apply = self._arrivals.get_nowait()
            except Empty:
                break
            apply()
        else:
            self._changed()  # The rest is taken the next time.
        if not self.complete:
            return None
        return self._gathering.view(
            time=datetime.now(UTC),
            source=self._connection.endpoint.name,
            namespace=self._connection.endpoint.namespace,
            server_version=self._server_version,
            left_out=(kind.resource for kind in self._left_out),
            notes=dict.fromkeys(self._notes.values()),
        )

    def _replace(self, wanted: WantedKind, pages: tuple[bytes, ...]) -> None:
        objects, faults = self._gathering.decode_list(wanted.kind, pages)
        self._gathering.by_kind[wanted.kind].replace(dict(objects), {each.key: each for each in faults})
        self._unheard.discard(wanted)
        self._notes.pop(wanted, None)
        self._left_out.discard(wanted.kind)

    def _change(self, wanted: WantedKind, document: msgspec.Raw, *, deleted: bool) -> None:
        store, found = self._gathering.by_kind[wanted.kind], None
        try:
            key, found = store.decode_object(bytes(document))
        except DecodeError as error:
            key = error.key
            if not deleted:
                store.note_undecodable([(key, error)])
                return
        store.apply([(key, None if deleted else found)])
        store.note_undecodable([(key, None)])

    def _refuse(self, wanted: WantedKind, error: UnreadableError) -> None:
        if wanted.required and not error.absent and wanted not in self._unheard:
            self._lost.setdefault(wanted, Lost(datetime.now(UTC), f"{error}."))
            return
        self._lost.pop(wanted, None)  # The API server has answered.
        self._notes[wanted] = note_unless_required(wanted, error)
        self._unheard.discard(wanted)
        if not error.absent:
            self._left_out.add(wanted.kind)

    def _lose(self, wanted: WantedKind, error: CommandError) -> None:
        if wanted in self._unheard:
            raise error
        self._lost.setdefault(wanted, Lost(datetime.now(UTC), error.message))

    # In the thread of a kind

    def _follow(self, wanted: WantedKind) -> None:
        version, lost, refused = "", 0, 0
        while not self._ended.is_set():
            try:
                version = version or self._list(wanted)
                lines = self._connection.lines(wanted, version)
                self._tell(partial(self._lost.pop, wanted, None))
                lost = refused = 0
                for line in lines:
                    version = self._event(wanted, line) or version
            except ListExpiredError:
                version = ""
            except UnreadableError as error:
                version = ""
                self._tell(partial(self._refuse, wanted, error))
                refused += 1
                self._ended.wait(PAUSE_IF_REFUSED.seconds(refused))
            except CommandError as error:
                self._tell(partial(self._lose, wanted, error))
                lost += 1
                self._ended.wait(PAUSE.seconds(lost))

    def _list(self, wanted: WantedKind) -> str:
        pages = tuple(self._connection.pages(wanted))
        self._tell(partial(self._replace, wanted, pages))
        try:
            return decoded(_read_version, pages[-1]).metadata.resource_version
        except msgspec.DecodeError as error:
            raise CommandError(f"the API server did not answer with a list: {error}.") from error

    def _event(self, wanted: WantedKind, line: bytes) -> str:
        """Hand over an event, and return its version."""
        try:
            event = decoded(_read_event, line)
            if event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=_Status)
                if status.code == _GONE:
                    raise ListExpiredError
                raise CommandError(f"the API server ended a watch of {wanted.kind.resource}: {status.message}.")
            version = decoded(_read_version, event.object).metadata.resource_version
        except msgspec.DecodeError as error:
            raise CommandError(f"a watch of {wanted.kind.resource} can't be read: {error}.") from error
        if event.type != "BOOKMARK":
            self._tell(partial(self._change, wanted, event.object, deleted=event.type == "DELETED"))
        return version

    def _tell(self, apply: Callable[[], object]) -> None:
        self._arrivals.put(apply)
        self._changed()


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: WireIdentity = msgspec.field(default_factory=WireIdentity)


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_read_event: Final = msgspec.json.Decoder(_Event).decode
_read_version: Final = msgspec.json.Decoder(_Versioned).decode
