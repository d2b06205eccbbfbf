"""The moves of a ledger while an event changes some of them."""

from __future__ import annotations

import msgspec
from immutables import Map

from respread.moves.entry import MoveEntry, MovePhase, controller_uid_of


class LedgerDraft:
    """The moves, with their index by controller. It belongs to one event."""

    __slots__ = ("entries", "number", "of_controller")

    def __init__(self, entries: Map[str, MoveEntry], of_controller: Map[str, Map[str, None]], number: int) -> None:
        """Start with the moves of a ledger.

        Args:
            entries: by the UIDs of the evicted pods.
            of_controller: the same UIDs of those in flight, by that of the pods' controller.
            number: of the next one.
        """
        self.entries = entries
        self.of_controller = of_controller
        self.number = number

    def put(self, entry: MoveEntry) -> None:
        """Set the state of a move. One that is new, or comes into flight, is the last one."""
        before = self.entries.get(entry.uid)
        was_in_flight = before is not None and before.is_in_flight
        if before is None or (entry.is_in_flight and not was_in_flight):
            entry = msgspec.structs.replace(entry, number=self.number)
            self.number += 1
        self.entries = self.entries.set(entry.uid, entry)
        if entry.is_in_flight != was_in_flight:
            self._file(entry, is_in_flight=entry.is_in_flight)

    def drop(self, uid: str) -> None:
        """Remove a move, if it is there."""
        if (entry := self.entries.get(uid)) is not None:
            self.entries = self.entries.delete(uid)
            if entry.is_in_flight:
                self._file(entry, is_in_flight=False)

    def leave(self, entry: MoveEntry) -> None:
        """Set that a move is not under way any more. It stays if it may count all the same."""
        counts = entry.phase is not MovePhase.CHOSEN or entry.doubted_at is not None
        if entry.counts is not None and counts:
            self.put(msgspec.structs.replace(entry, phase=MovePhase.UNCERTAIN))
        else:
            self.drop(entry.uid)

    def settle(self, entry: MoveEntry) -> None:
        """Set that a move does not count any more until something is certain."""
        phase = MovePhase.OVER if entry.phase is MovePhase.UNCERTAIN else entry.phase
        self.keep(msgspec.structs.replace(entry, phase=phase, counts=None, doubted_at=None))

    def keep(self, entry: MoveEntry) -> None:
        """Set the state of a move, or remove it if nothing more is to be known of it."""
        if entry.phase is MovePhase.OVER and entry.counts is None and not entry.lingers:
            self.drop(entry.uid)
        else:
            self.put(entry)

    def _file(self, entry: MoveEntry, *, is_in_flight: bool) -> None:
        controller = controller_uid_of(entry.move)
        mine = self.of_controller.get(controller, Map())
        mine = mine.set(entry.uid, None) if is_in_flight else mine.delete(entry.uid)
        self.of_controller = self.of_controller.set(controller, mine) if mine else self.of_controller.delete(controller)
