"""What the leader of an operator records about a policy for the next leader, in an object beside the policy.

The record is no part of the status: users read that, and only Respread reads this. It is one text, JSON in a field of
its object, because only Respread writes it, and whole. As fields of their own, its parts would be checked against a
schema and listed in `metadata.managedFields` one by one, which takes the API server about a millisecond per kilobyte.

Its size is bounded by that of its lists, of which each keeps what matters most, and by `MAX_RECORD_LENGTH`: a record
that would be longer is not written, and no move is made that it would have to contain.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from respread.api.fields import Count, Moment
from respread.api.json_documents import decoded
from respread.api.policy import PolicyKind
from respread.api.structures import read_clamped

RECORD_KINDS: Final[dict[PolicyKind, str]] = {
    "RebalancePolicy": "RebalancePolicyRecord",
    "ClusterRebalancePolicy": "ClusterRebalancePolicyRecord",
}
"""The kind of the records of each kind of policy."""
RECORD_PLURALS: Final[dict[PolicyKind, str]] = {
    "RebalancePolicy": "rebalancepolicyrecords",
    "ClusterRebalancePolicy": "clusterrebalancepolicyrecords",
}
MAX_RECORD_LENGTH: Final = 1_000_000
"""Characters. The API server takes objects of up to 1.5 MiB."""
MAX_BACK_OFFS: Final = 100
"""How many groups in back-off a record contains, those with the most failures first."""
MAX_RECENT_EVICTIONS: Final = 64
"""The minutes of an hour, and a few more for clocks that differ."""
MAX_MOVES_IN_FLIGHT: Final = 500
"""How many moves in flight a record contains. No policy has more moves in flight, however high its limits are."""
MAX_GROUPS_OF_MOVE: Final = 64
MAX_GROUP_EVICTIONS: Final = 200
"""For how many groups a record contains the evictions of the last hour, the highest numbers first."""
MAX_FAILED_WORKLOADS: Final = 20
"""How many workloads that failed in a row a record contains."""
MAX_WORKLOAD_LENGTH: Final = 512
MAX_NEWEST_PODS: Final = 32
"""How many pods that are not the replacement a move in flight lists by name."""
MAX_CONTESTED: Final = 100
"""For how many ReplicaSets a record says that their costs are contested, those lost most often first."""
MAX_FAILURES: Final = 1000
"""Beyond this number of failures, the back-off does not grow."""

_Digest = Annotated[str, Meta(max_length=64)]
"""Of a group or a situation: a short name that is the same in every process."""
_Failures = Annotated[int, Meta(ge=0, le=MAX_FAILURES)]
_Kind = Annotated[str, Meta(max_length=63)]
_Label = Annotated[str, Meta(max_length=63)]
_Name = Annotated[str, Meta(max_length=253)]
_Uid = Annotated[str, Meta(max_length=64)]
_Workload = Annotated[str, Meta(max_length=MAX_WORKLOAD_LENGTH)]


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader knows about a policy and records for the next leader.

    Its name is the policy's UID. Respread writes it before an eviction is sent, and only when it changes.
    """

    policy: Annotated[str, Meta(max_length=253, description="The name of the policy.")]
    record: Annotated[
        str,
        Meta(
            max_length=MAX_RECORD_LENGTH,
            description=(
                "Evictions in flight, evictions of the last hour, groups in back-off, failures in a row and contested "
                "pod deletion costs, as JSON. Its form may change with each version of Respread."
            ),
        ),
    ]


class RecordedBackOff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spread group in back-off, because moves did not improve it."""

    group: _Digest
    failures: _Failures
    """Moves in a row that did not improve it."""
    until: Moment
    """When the back-off ends if the situation does not change."""
    situation: _Digest
    """When the last move failed."""


class RecentEvictions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of evictions in one minute."""

    minute: Moment
    """The start of the minute."""
    evictions: Count
    """Those that count for `limits.perHour`."""


class GroupEvictionCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of evictions for one spread group within the last hour."""

    group: _Digest
    evictions: Count
    """Whatever their outcome."""
    last: Moment
    """The start of the minute of the last one."""


class FailuresInARow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Evictions that failed since the last success."""

    workloads: Annotated[tuple[_Workload, ...], Meta(max_length=MAX_FAILED_WORKLOADS)] = ()
    """The workloads whose pods were evicted, each once, such as `Deployment/web in shop`."""
    pauses: _Failures = 0
    """Pauses in a row."""
    paused_until: Moment | None = None
    """When the last pause ends."""


class LeftDomain(msgspec.Struct, frozen=True):
    """A spread group that a move should improve."""

    group: _Digest
    domain: _Label
    """The domain that the pod leaves."""


class MoveInFlight(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A move in flight, which the next leader follows. It is recorded before its eviction is sent.

    `recent_evictions` and `group_evictions` count it.
    """

    uid: _Uid
    """Of the evicted pod."""
    namespace: _Label
    pod: _Name
    node: _Name
    """The node that the pod leaves."""
    workload: _Workload
    """The workload that owns the pod, such as `Deployment/web`."""
    controller_kind: _Kind
    """The kind of the controller that creates the replacement."""
    controller_name: _Name
    controller_uid: _Uid
    groups: Annotated[tuple[LeftDomain, ...], Meta(max_length=MAX_GROUPS_OF_MOVE)] = ()
    """The spread groups that the eviction should improve."""
    sent: Moment
    """When the eviction was about to be sent."""
    newest: Moment
    """When the newest pod that the controller had at that time was created."""
    newest_pods: Annotated[tuple[_Name, ...], Meta(max_length=MAX_NEWEST_PODS)] = ()
    """Pods created at that time or later that are not the replacement."""


class ContestedCosts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ReplicaSet whose pod deletion costs somebody else removes or replaces again and again."""

    namespace: _Label
    kind: _Kind
    """The kind of the workload, such as Deployment."""
    name: _Name
    """The name of the workload."""
    replica_set: _Uid
    writer: Annotated[str, Meta(max_length=128)] = ""
    """The field manager that replaced costs. Empty if costs were removed, because that leaves none."""
    times: _Failures
    """How often costs were lost after Respread had written them."""
    until: Moment
    """Respread writes no cost before this time, unless pods of the ReplicaSet go."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is recorded about a policy for the next leader."""

    back_offs: Annotated[tuple[RecordedBackOff, ...], Meta(max_length=MAX_BACK_OFFS)] = ()
    """Spread groups in back-off."""
    recent_evictions: Annotated[tuple[RecentEvictions, ...], Meta(max_length=MAX_RECENT_EVICTIONS)] = ()
    """The evictions of the last hour by minute, if `limits.perHour` is set."""
    group_evictions: Annotated[tuple[GroupEvictionCount, ...], Meta(max_length=MAX_GROUP_EVICTIONS)] = ()
    """The evictions of the last hour by spread group, the highest number first."""
    failures_in_a_row: FailuresInARow = FailuresInARow()
    moves_in_flight: Annotated[tuple[MoveInFlight, ...], Meta(max_length=MAX_MOVES_IN_FLIGHT)] = ()
    """Evictions that were made or about to be made."""
    contested_costs: Annotated[tuple[ContestedCosts, ...], Meta(max_length=MAX_CONTESTED)] = ()
    """Those lost most often first."""


NOTHING: Final = Recorded()


def encode_record(record: Recorded) -> str:
    """Return the text of a record. Parts that have their defaults are left out."""
    parts: dict[str, Any] = {
        field.encode_name: value
        for field in msgspec.structs.fields(record)
        if (value := getattr(record, field.name)) != field.default
    }
    return msgspec.json.encode(parts).decode()


def decode_record(text: object) -> Recorded:
    """Read the text of a record, with every field within its bounds. What can't be read counts as absent.

    Fields that only a later version knows are left out, so that an operator can be downgraded.
    """
    try:
        value = decoded(msgspec.json.decode, text.encode()) if isinstance(text, str) else None
    except (msgspec.DecodeError, UnicodeEncodeError):
        value = None
    return read_clamped(Recorded, value) or NOTHING
