"""What future replacements will use of quotas."""

from __future__ import annotations

from typing import Final

from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.moves.ledger import Ledger
from respread.planning.held import Held

Usage = dict[str, int]
"""Amounts by the names in a quota."""

_NO_REPLACEMENT: Final = "the ResourceQuotas of namespace {} do not show the replacement of {} yet"


class ComingReplacements:
    """The replacements of moves about to be made, and of moves in flight without one."""

    __slots__ = ("_usages",)

    def __init__(self) -> None:
        self._usages: dict[str, Usage] = {}
        """By the UIDs of the pods that are replaced."""

    def add(self, pod: Pod, usage: Usage) -> None:
        """Add the replacement of a pod whose move may be made, as far as its controllers are concerned."""
        self._usages[pod.uid] = usage

    def usages_beside(self, pod: Pod, moves: Ledger) -> list[Usage] | Held:
        """Return what other replacements in a pod's namespace use that quotas don't show, or why that is unknown.

        Args:
            pod: the pod whose replacement would be added.
            moves: the moves.
        """
        awaited = {each.uid: each for each in moves.under_way if each.replacement is None}
        self._usages = {uid: usage for uid, usage in self._usages.items() if uid in awaited}
        here = {uid: each for uid, each in awaited.items() if each.move.pod.namespace == pod.namespace}
        here.pop(pod.uid, None)
        unknown = [uid for uid, each in here.items() if each.is_in_flight and uid not in self._usages]
        if unknown:
            return Held(Reason.IN_MOTION, _NO_REPLACEMENT.format(pod.namespace, here[min(unknown)].move.pod.name))
        return [self._usages[uid] for uid in here if uid in self._usages]
