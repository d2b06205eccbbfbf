"""Sets or removes the deletion costs of pods by server-side apply, in an order, and knows what is in progress.

The field manager `respread` only owns what it applies. If somebody else wrote a cost, the API server answers with a
conflict, and the cost is not overwritten unless the policy says so. Applying nothing removes only what Respread owns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from math import inf
from typing import Final

import msgspec

from respread.api.json_documents import decoded
from respread.cluster.decode.metadata import FIELD_MANAGER, owner_of_annotation
from respread.cluster.meta import POD_DELETION_COST
from respread.cluster.pod import Pod
from respread.kube.requests import TIMEOUT_SECONDS, Meaning, NoResponseError, Requests, Response, Status, status_of
from respread.planning.victims.protection import read_deletion_cost
from respread.prevention.ranks import HeldCost, cost_of

_POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
_APPLY: Final = "application/apply-patch+yaml"


class PatchResult(StrEnum):
    """The API server's answer to a patch. The value is the label in the metrics."""

    APPLIED = "Applied"
    ALREADY = "Already"
    """The pod has another cost than Respread knew, and nothing was sent."""
    FOREIGN = "Foreign"
    """Somebody else wrote a cost."""
    GONE = "Gone"
    """The pod does not exist any more, or is being deleted."""
    FORBIDDEN = "Forbidden"
    NOT_PERMITTED = "NotPermitted"
    """The permission is missing, and nothing was sent."""
    THROTTLED = "Throttled"
    UNREACHABLE = "Unreachable"
    """The patch was not sent."""
    UNKNOWN = "Unknown"
    """The patch was sent, and may or may not have been applied."""
    SERVER_ERROR = "ServerError"
    """The patch may have been applied, but won't be any more."""
    INVALID = "Invalid"


class PatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A result, and the message."""

    result: PatchResult
    message: str = ""
    cost: HeldCost | None = None
    """The pod's cost, if it was read."""
    retry_after_seconds: float | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    managed_fields: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Pod(msgspec.Struct):
    metadata: _Metadata


_read_pod: Final = msgspec.json.Decoder(_Pod).decode


class DeletionCosts:
    """The pod deletion costs of a cluster."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def set(
        self,
        pod: Pod,
        cost: int | None,
        *,
        known: HeldCost | None,
        careful: bool = False,
        replacing: bool = False,
        may_send: Callable[[], bool] = lambda: True,
        time_left: Callable[[], float] = lambda: TIMEOUT_SECONDS,
    ) -> PatchAnswer | None:
        """Request once that a pod's cost is set, or removed if it is None. Return None if it may not be sent any more.

        A later pod of the same name is left alone. If `careful`, the pod is read first, and nothing is sent if it has
        another cost than `known`. If `replacing`, a cost that somebody else wrote is replaced. `may_send` is called
        right before the patch is written, after its credentials have been added, and `time_left` before it is prepared:
        the answer must arrive within this many seconds.
        """
        if (refusal := await self._requests.refusal("PATCH", _POD, pod.key._asdict())) is not None:
            return _answer(refusal)
        if careful and (found := await self.read(pod, known)) is not None:
            return found

        annotations = {} if cost is None else {"annotations": {POD_DELETION_COST: str(cost)}}
        metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, **annotations}
        try:
            request = await self._requests.prepare(
                "PATCH",
                _POD,
                pod.key._asdict(),
                query={"fieldManager": FIELD_MANAGER, **({"force": "true"} if replacing else {})},
                body={"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
                content_type=_APPLY,
                timeout_seconds=min(TIMEOUT_SECONDS, time_left()),
            )
            if not may_send():
                return None
            return _answer(await request.send())
        except NoResponseError as error:
            result = PatchResult.UNKNOWN if error.sent else PatchResult.UNREACHABLE
            return PatchAnswer(result=result, message=error.message)

    async def read(self, pod: Pod, known: HeldCost | None) -> PatchAnswer | None:
        """Read a pod, and return what differs from what is known, or why that can't be told; None if nothing does."""
        try:
            response = await self._requests.send("GET", _POD, pod.key._asdict())
            if not response.succeeded:
                return _answer(response)
            metadata = decoded(_read_pod, response.body).metadata
        except NoResponseError as error:
            return PatchAnswer(result=PatchResult.UNREACHABLE, message=error.message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return PatchAnswer(result=PatchResult.SERVER_ERROR, message=f"the answer is not a pod: {error}")
        if metadata.uid != pod.uid or metadata.deletion_timestamp is not None:
            return PatchAnswer(result=PatchResult.GONE)
        found = _cost(metadata)
        if found == known:
            return None
        foreign = found is not None and not found.ours
        return PatchAnswer(result=PatchResult.FOREIGN if foreign else PatchResult.ALREADY, cost=found)


def _cost(metadata: _Metadata) -> HeldCost | None:
    text = (metadata.annotations or {}).get(POD_DELETION_COST)
    if text is None:
        return None
    return HeldCost(read_deletion_cost(text), owner_of_annotation(metadata.managed_fields, POD_DELETION_COST).ours)


def _answer(response: Response) -> PatchAnswer:
    if response.succeeded:
        return PatchAnswer(result=PatchResult.APPLIED)
    status = status_of(response.body)
    return PatchAnswer(
        result=_result(response.meaning, status) if response.sent else PatchResult.NOT_PERMITTED,
        message=status.message or f"the API server answered {response.status_code} without a message",
        retry_after_seconds=response.retry_after_seconds,
    )


_RESULTS: Final = {
    Meaning.ABSENT: PatchResult.GONE,
    Meaning.FORBIDDEN: PatchResult.FORBIDDEN,
    Meaning.THROTTLED: PatchResult.THROTTLED,
    Meaning.REFUSED: PatchResult.INVALID,
}


def _result(meaning: Meaning, status: Status) -> PatchResult:
    if meaning is Meaning.CONFLICT:
        # The other kind says that the pod has another UID or does not exist.
        return PatchResult.FOREIGN if status.has_cause("FieldManagerConflict") else PatchResult.GONE
    return _RESULTS.get(meaning, PatchResult.SERVER_ERROR)


class Purpose(Enum):
    """Why a pod's cost is patched."""

    RANK = "Rank"
    """The pod has no cost."""
    RERANK = "Rerank"
    """Another cost serves the spread better."""
    REMOVE = "Remove"
    """No policy asks for the cost any more."""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a pod's deletion cost."""

    pod: Pod
    cost: int | None
    """None: remove it."""
    before: HeldCost | None
    """The cost that the pod is assumed to have."""
    purpose: Purpose
    policy: str
    """The name of the policy that asks for it; empty if the pod has lost its policy."""
    replica_set: str
    """The UID of the pod's controller; empty if its controller does not use costs."""
    replacing: bool = False
    """Whether a cost that somebody else wrote is to be replaced."""
    unseen: bool = False
    """Whether an earlier patch of the pod was made that the watch never showed, so that `before` may be outdated."""


class PatchQueue:
    """Patches that are not sent yet, one per pod, the oldest first, reranking last."""

    def __init__(self) -> None:
        # Not plain dicts: to find their first entry, they examine all that were ever deleted before it.
        self._urgent: OrderedDict[str, Patch] = OrderedDict()
        self._reranks: OrderedDict[str, Patch] = OrderedDict()
        self._of_replica_set: dict[str, tuple[Patch, ...]] = {}

    def __len__(self) -> int:
        """The number of patches."""
        return len(self._urgent) + len(self._reranks)

    def of(self, replica_set: str) -> tuple[Patch, ...]:
        """Return the patches of a ReplicaSet."""
        return tuple(
            patch
            for patch in self._of_replica_set.get(replica_set, ())
            if self._lane(patch).get(patch.pod.uid) is patch
        )

    def replace(self, replica_set: str, patches: Iterable[Patch]) -> None:
        """Replace the patches of a ReplicaSet. Those for the same pods keep their position."""
        wanted = tuple(patches)
        pods = {patch.pod.uid: patch for patch in wanted}
        for before in self._of_replica_set.pop(replica_set, ()):
            lane = self._lane(before)
            after = pods.get(before.pod.uid)
            if after is None or self._lane(after) is not lane:
                lane.pop(before.pod.uid, None)
        for patch in wanted:
            self._lane(patch)[patch.pod.uid] = patch
        if wanted:
            self._of_replica_set[replica_set] = wanted

    def urgent(self) -> Patch | None:
        """Return the oldest patch that is not a reranking. It stays in the queue."""
        return next(iter(self._urgent.values()), None)

    def rerank(self) -> Patch | None:
        """Return the oldest reranking. It stays in the queue."""
        return next(iter(self._reranks.values()), None)

    def drop(self, patch: Patch) -> None:
        """Remove a patch."""
        self._lane(patch).pop(patch.pod.uid, None)

    def _lane(self, patch: Patch) -> OrderedDict[str, Patch]:
        return self._reranks if patch.purpose is Purpose.RERANK else self._urgent


LAPSED_SECONDS: Final = 3600.0
"""How long Respread remembers that a patch never became visible."""


class _Assumed(msgspec.Struct, frozen=True):
    cost: HeldCost | None
    until: float
    lapsed: bool = False
    """Whether that time is over. Then the watch is trusted again, but verified."""


class Assumptions:
    """Costs that pods are assumed to have, although the watch does not show them (yet)."""

    def __init__(self) -> None:
        self._costs: dict[str, _Assumed] = {}

    def cost_of(self, pod: Pod) -> HeldCost | None:
        """Return the cost that a pod is assumed to have."""
        assumed = self._costs.get(pod.uid)
        return cost_of(pod) if assumed is None or assumed.lapsed else assumed.cost

    def cost_to_respect(self, pod: Pod) -> HeldCost | None:
        """Return the same if Respread may replace costs of others: none where the watch shows such a cost."""
        cost = self.cost_of(pod)
        assumed = self._costs.get(pod.uid)
        replaceable = cost is not None and not cost.ours and (assumed is None or assumed.lapsed)
        return None if replaceable else cost

    def may_have_ours(self, pod: Pod) -> bool:
        """Return whether a pod has a cost of Respread, or may have one that the watch has not shown for too long."""
        assumed = self._costs.get(pod.uid)
        cost = cost_of(pod) if assumed is None else assumed.cost
        return cost is not None and cost.ours

    def unseen(self, pod: Pod) -> bool:
        """Return whether the watch has not shown the assumed cost of a pod for too long."""
        assumed = self._costs.get(pod.uid)
        return assumed is not None and assumed.lapsed

    def assume(self, pod: Pod, cost: HeldCost | None, until: float = inf) -> None:
        """Assume a cost for a pod until some time on the clock."""
        self._costs[pod.uid] = _Assumed(cost, until)

    def forget(self, pod: Pod) -> None:
        """Trust the watch."""
        self._costs.pop(pod.uid, None)

    def drop_confirmed(self, pods: Iterable[Pod], now: float) -> None:
        """Drop assumptions that the watch confirms, or has not confirmed for too long."""
        if not self._costs:
            return
        for pod in pods:
            assumed = self._costs.get(pod.uid)
            if assumed is None or assumed.until == inf:
                continue
            if assumed.cost == cost_of(pod):
                del self._costs[pod.uid]
            elif assumed.until <= now and not assumed.lapsed:
                self._costs[pod.uid] = msgspec.structs.replace(assumed, lapsed=True)

    def next_end(self, pods: Iterable[Pod]) -> float:
        """Return when the first assumption about any of these pods ends; infinity if none does."""
        if not self._costs:
            return inf
        found = (assumed for pod in pods if (assumed := self._costs.get(pod.uid)) is not None)
        return min((assumed.until for assumed in found if not assumed.lapsed), default=inf)

    def under_way(self, pods: Iterable[Pod]) -> bool:
        """Return whether the patch of any of these pods has no answer yet."""
        return bool(self._costs) and any(
            (assumed := self._costs.get(pod.uid)) is not None and assumed.until == inf for pod in pods
        )

    def expire(self, now: float) -> None:
        """Drop assumptions that were not confirmed for very long, about pods that may be gone."""
        self._costs = {uid: assumed for uid, assumed in self._costs.items() if assumed.until + LAPSED_SECONDS > now}
