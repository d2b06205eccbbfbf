"""What is recorded about a policy for the next leader, and how much of it at most.

It has an object of its own (`respread.api.record`). The status of a policy (`respread.api.status`) has the same fields,
because earlier versions kept them there.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from respread.api.fields import Moment, described

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
MAX_COUNT: Final = 2**31 - 1
_MEMORY: Final = {"x-kubernetes-list-type": "atomic"}
"""Of lists that only Respread writes, and whole. As maps they would be in metadata.managedFields field by field:
with 60 moves under way the object is 60% larger then, and takes the API server nearly twice as long."""
_FORMER: Final = "Deprecated: it is in the policy's record."
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class RememberedBackOff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spread group in back-off, because moves did not improve it. The next leader reads this."""

    group: Annotated[str, Meta(max_length=64, description="A digest of the group: its constraint and its pods.")]
    failures: Annotated[int, Meta(ge=0, le=MAX_FAILURES, description="Moves in a row that did not improve it.")]
    until: Annotated[Moment, described("When the back-off ends if the situation does not change.")]
    situation: Annotated[str, Meta(max_length=64, description="A digest of the situation when the last move failed.")]


class RecentEvictions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of evictions in one minute."""

    minute: Annotated[Moment, described("The start of the minute.")]
    evictions: Annotated[Count, described("Evictions in that minute that count for limits.perHour.")]


class GroupEvictionCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of evictions for one spread group within the last hour. The next leader reads this."""

    group: Annotated[str, Meta(max_length=64, description="A digest of the group, as in backOffs.")]
    evictions: Annotated[Count, described("Evictions within the last hour, whatever their outcome.")]
    last: Annotated[Moment, described("The start of the minute of the last one.")]


class FailuresInARow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Evictions that failed since the last success. The next leader reads this."""

    workloads: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_WORKLOAD_LENGTH)], ...],
        Meta(
            max_length=MAX_FAILED_WORKLOADS,
            description="The workloads whose pods were evicted, each once, such as Deployment/web in shop.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    pauses: Annotated[int, Meta(ge=0, le=MAX_FAILURES, description="Pauses in a row.")] = 0
    paused_until: Annotated[Moment | None, described("When the last pause ends.")] = None


class LeftDomain(msgspec.Struct, frozen=True):
    """A spread group that a move should improve."""

    group: Annotated[str, Meta(max_length=64, description="A digest of the group, as in backOffs.")]
    domain: Annotated[str, Meta(max_length=63, description="The domain that the pod leaves.")]


class MoveInFlight(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A move in flight, which the next leader follows. It is recorded before its eviction is sent."""

    uid: Annotated[str, Meta(max_length=64, description="The UID of the evicted pod.")]
    namespace: Annotated[str, Meta(max_length=63, description="The pod's namespace.")]
    pod: Annotated[str, Meta(max_length=253, description="The pod's name.")]
    node: Annotated[str, Meta(max_length=253, description="The node that the pod leaves.")]
    workload: Annotated[
        str, Meta(max_length=MAX_WORKLOAD_LENGTH, description="The workload that owns the pod, such as Deployment/web.")
    ]
    controller_kind: Annotated[
        str, Meta(max_length=63, description="The kind of the controller that creates the replacement.")
    ]
    controller_name: Annotated[str, Meta(max_length=253, description="The controller's name.")]
    controller_uid: Annotated[str, Meta(max_length=64, description="The controller's UID.")]
    groups: Annotated[
        tuple[LeftDomain, ...],
        Meta(
            max_length=MAX_GROUPS_OF_MOVE,
            description="The spread groups that the eviction should improve.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    sent: Annotated[Moment, described("When the eviction was about to be sent.")]
    counted: Annotated[bool, described("Whether recentEvictions and groupEvictions count it.")] = False
    newest: Annotated[Moment, described("When the newest pod that the controller had at that time was created.")]
    newest_pods: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...],
        Meta(
            max_length=MAX_NEWEST_PODS,
            description="Pods created at that time or later that are not the replacement.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()


class ContestedCosts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ReplicaSet whose pod deletion costs somebody else removes or replaces again and again."""

    namespace: Annotated[str, Meta(max_length=63, description="The namespace of the pods.")]
    kind: Annotated[str, Meta(max_length=63, description="The kind of the workload, such as Deployment.")]
    name: Annotated[str, Meta(max_length=253, description="The name of the workload.")]
    replica_set: Annotated[str, Meta(max_length=64, description="The UID of the ReplicaSet.")]
    writer: Annotated[
        str,
        Meta(
            max_length=128,
            description="The field manager that replaced costs. Empty if costs were removed, because that leaves none.",
        ),
    ] = ""
    times: Annotated[
        int, Meta(ge=0, le=MAX_FAILURES, description="How often costs were lost after Respread had written them.")
    ]
    until: Annotated[Moment, described("Respread writes no cost before this time, unless pods of the ReplicaSet go.")]


class Recorded(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is recorded about a policy for the next leader. It has an object of its own: see `api.record`.

    Earlier versions kept it in the status, and so does this one where the API server has no records. So the schema of a
    status has these fields too: where they are still there, they are read, and removed once the record is written.
    """

    back_offs: Annotated[
        tuple[RememberedBackOff, ...],
        Meta(
            max_length=MAX_BACK_OFFS,
            description=f"{_FORMER} Spread groups in back-off, because moves did not improve them.",
            extra_json_schema=_MEMORY,
        ),
    ] = ()
    recent_evictions: Annotated[
        tuple[RecentEvictions, ...],
        Meta(
            max_length=MAX_RECENT_EVICTIONS,
            description=f"{_FORMER} The evictions of the last hour by minute, if limits.perHour is set.",
            extra_json_schema=_MEMORY,
        ),
    ] = ()
    group_evictions: Annotated[
        tuple[GroupEvictionCount, ...],
        Meta(
            max_length=MAX_GROUP_EVICTIONS,
            description=f"{_FORMER} The evictions of the last hour by spread group, the highest number first.",
            extra_json_schema=_MEMORY,
        ),
    ] = ()
    failures_in_a_row: Annotated[
        FailuresInARow, described(f"{_FORMER} Evictions that failed since the last success.")
    ] = FailuresInARow()
    moves_in_flight: Annotated[
        tuple[MoveInFlight, ...],
        Meta(
            max_length=MAX_MOVES_IN_FLIGHT,
            description=f"{_FORMER} Evictions that were made or about to be made.",
            extra_json_schema=_MEMORY,
        ),
    ] = ()
    contested_costs: Annotated[
        tuple[ContestedCosts, ...],
        Meta(
            max_length=MAX_CONTESTED,
            description=f"{_FORMER} ReplicaSets whose pod deletion costs are contested, those lost most often first.",
            extra_json_schema=_MEMORY,
        ),
    ] = ()
