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

    __slots__ = ("_planned", "_usages")

    def __init__(self) -> None:
        self._usages: dict[str, Usage] = {}
        """By the UIDs of the pods that are replaced."""
        self._planned: dict[str, str] = {}
        """The namespaces of the moves about to be made, by the UIDs of the pods."""

    def add(self, pod: Pod, usage: Usage) -> None:
        """Add the replacement of a pod whose move is about to be made."""
        self._usages[pod.uid] = usage
        self._planned[pod.uid] = pod.namespace

    def not_planned(self, pod: Pod) -> None:
        """Record that the move of a pod is in flight now, or is not made."""
        self._planned.pop(pod.uid, None)

    def usages_beside(self, pod: Pod, moves: Ledger) -> list[Usage] | Held:
        """Return what other replacements in a pod's namespace use that quotas don't show, or why that is unknown.

        Args:
            pod: the pod whose replacement would be added.
            moves: the moves.
        """
        awaited = {each.uid: each.move.pod for each in moves.in_flight if each.replacement is None}
        replaced = {each.uid for each in moves.in_flight if each.replacement is not None}
        self._usages = {uid: usage for uid, usage in self._usages.items() if uid in awaited or uid in self._planned}
        here = {uid for uid, each in awaited.items() if each.namespace == pod.namespace}
        here |= {uid for uid, namespace in self._planned.items() if namespace == pod.namespace}
        here -= {pod.uid, *replaced}
        if unknown := sorted(here - self._usages.keys()):
            name = awaited[unknown[0]].name if unknown[0] in awaited else unknown[0]
            return Held(Reason.IN_MOTION, _NO_REPLACEMENT.format(pod.namespace, name))
        return [self._usages[uid] for uid in here]
