"""The objects that people look at for a pod: the Deployment above its ReplicaSet, as far as it was read."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod

_REMEMBERED: Final = 4096
"""Controllers whose owners are kept in mind."""


class TopOwners:
    """Remembers what controls the controllers that were read before evictions.

    ReplicaSets are not watched, and without a UID `kubectl describe` does not find an object's Events.
    """

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: OrderedDict[str, OwnerReference] = OrderedDict()

    def note(self, controller_uid: str, owner: OwnerReference | None) -> None:
        """Remember the owner of a controller; None if it has none."""
        if owner is None:
            return
        self._owners[controller_uid] = owner
        self._owners.move_to_end(controller_uid)
        if len(self._owners) > _REMEMBERED:
            self._owners.popitem(last=False)

    def of(self, pod: Pod) -> OwnerReference | None:
        """Return the owner of a pod's controller if it is known, else the controller; None if the pod has none."""
        return None if pod.controller is None else self._owners.get(pod.controller.uid, pod.controller)
