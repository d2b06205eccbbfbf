"""Moves in flight as the policies' records contain them.

A move is recorded before its eviction is sent. So a process that is killed at any moment leaves behind which pods it
evicted, or was about to, and for which groups (`recovery` reads them).

What is recorded of a move is computed when the move changes, not for every reconcile and every record that is written:
hundreds of moves may be in flight for minutes, and the pods of their controllers may be thousands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Final

from respread.api.record import (
    MAX_GROUPS_OF_MOVE,
    MAX_MOVES_IN_FLIGHT,
    MAX_NEWEST_PODS,
    MAX_WORKLOAD_LENGTH,
    LeftDomain,
    MoveInFlight,
)
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.checkpoint import group_name
from respread.moves.entry import MoveEntry, controller_uid_of
from respread.moves.ledger import Ledger
from respread.planning.victims.controllers import siblings_of

_SECOND: Final = timedelta(seconds=1)
"""The API server stores creation timestamps in whole seconds."""
_LONG_AGO_SECONDS: Final = 30.0
"""Further than this the clocks of the API server and of this process are not apart: its Lease would not work either."""


class RememberedMoves:
    """Returns moves in flight for records. It belongs to one event loop."""

    __slots__ = ("_by_policy", "_ledger", "_written")

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._by_policy: Mapping[str, tuple[MoveInFlight, ...]] = {}
        self._written: dict[str, tuple[MoveEntry, MoveInFlight]] = {}
        """By the UIDs of the pods: each move as it was, and what was recorded of it."""

    def of(self, ledger: Ledger, snapshot: ClusterSnapshot) -> Mapping[str, tuple[MoveInFlight, ...]]:
        """Return the moves that records contain by the policies' names, in the order in which they were sent.

        Args:
            ledger: the moves.
            snapshot: the cluster as the watch shows it. Only moves that have changed are compared with it: pods that
                are recorded as no replacement may be gone meanwhile, which changes nothing.
        """
        if ledger is not self._ledger:
            before, self._written = self._written, {}
            siblings = _YoungSiblings(snapshot)
            found: defaultdict[str, list[MoveInFlight]] = defaultdict(list)
            for entry in ledger.on_record:
                known = before.get(entry.uid)
                if known is None or known[0] is not entry:
                    known = entry, _recorded(entry, siblings)
                self._written[entry.uid] = known
                found[entry.move.policy].append(known[1])
            self._by_policy = {policy: tuple(moves[:MAX_MOVES_IN_FLIGHT]) for policy, moves in found.items()}
            self._ledger = ledger
        return self._by_policy


class _YoungSiblings:
    """The pods of controllers that were created at a moment or later, found once for all moves that ask for them."""

    __slots__ = ("_found", "_snapshot")

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._found: dict[tuple[str, datetime], list[Pod]] = {}

    def known(self, entry: MoveEntry, moment: datetime) -> list[str]:
        """Return the names of those that are no replacement of a move, at most one more than a record may list."""
        siblings = self._since(entry, moment)
        names = (each.name for each in siblings if each.uid in entry.known and each.uid != entry.uid)
        return list(islice(names, MAX_NEWEST_PODS + 1))

    def _since(self, entry: MoveEntry, moment: datetime) -> list[Pod]:
        asked = controller_uid_of(entry.move), moment
        if (found := self._found.get(asked)) is None:
            siblings = siblings_of(self._snapshot, entry.move.pod)
            found = [each for each in siblings if (created := each.creation_timestamp) and created >= moment]
            found.sort(key=attrgetter("creation_timestamp"))  # first those that are known, then replacements
            self._found[asked] = found
        return found


def _recorded(entry: MoveEntry, siblings: _YoungSiblings) -> MoveInFlight:
    move, controller = entry.move, entry.move.pod.controller
    newest, newest_pods = _newest(entry, siblings)
    return MoveInFlight(
        uid=move.pod.uid,
        namespace=move.pod.namespace,
        pod=move.pod.name,
        node=move.pod.node_name,
        workload=str(move.workload)[:MAX_WORKLOAD_LENGTH],  # one that somebody forged may have no slash, and gets one
        controller_kind="" if controller is None else controller.kind,
        controller_name="" if controller is None else controller.name,
        controller_uid="" if controller is None else controller.uid,
        groups=tuple(
            LeftDomain(group_name(key), domain) for key, domain in zip(move.groups, move.from_domains, strict=True)
        )[:MAX_GROUPS_OF_MOVE],
        sent=datetime.fromtimestamp(int(entry.sent_time), UTC),
        newest=newest,
        newest_pods=newest_pods,
    )


def _newest(entry: MoveEntry, siblings: _YoungSiblings) -> tuple[datetime, tuple[str, ...]]:
    """Return a moment, and the pods created then or later that are not the replacement.

    Where the newest pod was created long before the eviction was sent, a second later is as good, and names nobody.
    Of very many pods created in the same second none is named, and the moment is a second later: a replacement made
    within that very second would be missed, and the move's outcome is then Unknown.
    """
    newest = entry.newest
    others = siblings.known(entry, newest)
    if len(others) > MAX_NEWEST_PODS or (others and entry.sent_time - newest.timestamp() > _LONG_AGO_SECONDS):
        newest += _SECOND
        others = siblings.known(entry, newest)
    return newest, tuple(sorted(others)[:MAX_NEWEST_PODS])
