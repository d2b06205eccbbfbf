"""The `status` of a policy, which `kubectl get` and `kubectl describe` show.

The control loop writes it (`respread.api.conditions` computes it) and reads it back after a restart.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from respread.api.fields import Moment, described
from respread.api.policy import WhenUnsatisfiable

MAX_VIOLATIONS: Final = 20
"""How many violated constraints a status contains, the worst first."""
MAX_DOMAINS: Final = 20
"""How many domains of a violated constraint a status contains."""
MAX_WORKLOADS: Final = 20
"""How many workloads of a violated constraint a status contains."""
MAX_MESSAGE_LENGTH: Final = 2048
MAX_BACK_OFFS: Final = 100
"""How many groups in back-off a status contains, those with the most failures first."""
MAX_RECENT_EVICTIONS: Final = 64
"""The minutes of an hour, and a few more for clocks that differ."""
MAX_MOVES_IN_FLIGHT: Final = 500
"""How many moves in flight a status contains. No policy has more moves in flight, however high its limits are."""
MAX_GROUPS_OF_MOVE: Final = 64
MAX_GROUP_EVICTIONS: Final = 200
"""For how many groups a status contains the evictions of the last hour, the highest numbers first."""
MAX_FAILED_WORKLOADS: Final = 20
"""How many workloads that failed in a row a status contains."""
MAX_WORKLOAD_LENGTH: Final = 512
MAX_NEWEST_PODS: Final = 32
"""How many pods that are not the replacement a move in flight lists by name."""

MAX_CONTESTED: Final = 100
"""For how many ReplicaSets a status records that their costs are contested, those lost most often first."""

MAX_CONDITIONS: Final = 16
MAX_FAILURES: Final = 1000
"""Beyond this number of failures, the back-off does not grow."""
MAX_COUNT: Final = 2**31 - 1
MAX_GENERATION: Final = 2**53

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]
ConditionType: TypeAlias = Literal[
    "Ready",
    "Balanced",
    "Progressing",
    "Blocked",
    "Reconciling",
    "Stalled",
    "Paused",
    "Oscillating",
    "CostsContested",
    "OtherDescheduler",
    "RoomMissing",
]

_MEMORY: Final = {"x-kubernetes-list-type": "atomic"}
"""Of lists that only Respread writes, and whole. As maps they would be in metadata.managedFields field by field:
with 60 moves under way the object is 60% larger then, and takes the API server nearly twice as long."""

_FORMER: Final = "Deprecated: it is in the policy's record."

_Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
_Generation = Annotated[int, Meta(ge=0, le=MAX_GENERATION)]
_Message = Annotated[str, Meta(max_length=MAX_MESSAGE_LENGTH)]
_ReasonWord = Annotated[str, Meta(max_length=64)]


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One condition, in the shape of `metav1.Condition`."""

    type: Annotated[
        str,
        Meta(
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            description=(
                "Ready: the policy is valid and in force. Balanced: every constraint that it restores holds. "
                "Progressing: evictions are in progress. Blocked: a constraint is violated and can't be restored now. "
                "Reconciling: no plan has been made yet for the current generation. Stalled: the policy is invalid. "
                "Paused: evictions failed in a row, and none is made for some time. Oscillating: a constraint is "
                "violated again after as many evictions as limits.perHourPerGroup allows. CostsContested: somebody "
                "else removes or replaces the pod deletion costs that Respread writes. OtherDescheduler: somebody else "
                "evicts pods of the policy again and again."
            ),
        ),
    ]
    status: Annotated[ConditionStatus, described("Whether the condition holds.")]
    observed_generation: Annotated[
        _Generation, described("The metadata.generation of the policy that the condition describes.")
    ] = 0
    last_transition_time: Annotated[Moment, described("When the condition's status last changed.")]
    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="The reason for the condition's status, as one word.",
        ),
    ]
    message: Annotated[str, Meta(max_length=32768, description="The reason as a sentence, and what to do.")] = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods and constraints that the policy governs, in numbers."""

    groups: Annotated[
        _Count, described("Number of spread groups: constraints, each counted once for the pods that share it.")
    ] = 0
    violated: Annotated[_Count, described("Spread groups whose skew is above their maxSkew.")] = 0
    worst_skew: Annotated[_Count, described("The greatest skew of any spread group.")] = 0
    pods: Annotated[_Count, described("Pods that the policy governs.")] = 0
    planned_evictions: Annotated[
        _Count, described("Evictions in the plan, which restore everything that can be restored.")
    ] = 0
    in_flight: Annotated[_Count, described("Evictions whose replacement is not Ready yet.")] = 0
    evicted: Annotated[_Count, described("Evictions made for this policy so far.")] = 0


class DomainCount(msgspec.Struct, frozen=True):
    """A topology domain and the number of pods in it."""

    domain: Annotated[str, Meta(max_length=63, description="The domain: the value of the topology key.")]
    pods: Annotated[_Count, described("The pods there that the constraint counts.")]


class AffectedWorkload(msgspec.Struct, frozen=True):
    """A workload of the pods, in their namespace."""

    kind: Annotated[str, Meta(max_length=63, description="The kind, such as Deployment.")]
    name: Annotated[str, Meta(max_length=253, description="The name.")]


class ViolatedConstraint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The constraint as in the pod spec."""

    topology_key: Annotated[str, Meta(max_length=317, description="The node label whose values are the domains.")]
    when_unsatisfiable: Annotated[
        WhenUnsatisfiable, described("What kube-scheduler does with pods that would violate it.")
    ]
    max_skew: Annotated[_Count, described("The skew that it allows.")]


class Violation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A violated constraint and what is done about it."""

    namespace: Annotated[str, Meta(max_length=63, description="The namespace of the pods.")]
    workloads: Annotated[
        tuple[AffectedWorkload, ...],
        Meta(
            max_length=MAX_WORKLOADS,
            description="The workloads of the pods, at most 20.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    constraint: ViolatedConstraint
    skew: Annotated[_Count, described("The actual skew: the pods of the fullest domain minus the global minimum.")]
    domains: Annotated[
        tuple[DomainCount, ...],
        Meta(
            max_length=MAX_DOMAINS,
            description="Pods per domain, the fullest first. Of more than 20, the ten fullest and the ten emptiest.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    omitted_domains: Annotated[_Count, described("Number of domains that are not listed.")] = 0
    planned_moves: Annotated[_Count, described("Evictions planned to restore it.")] = 0
    reason: Annotated[
        _ReasonWord, described("Why it is not, or not fully, being restored, as one word. Empty if it is.")
    ] = ""
    message: Annotated[_Message, described("The reason as a sentence.")] = ""


class BlockedCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A reason why Respread does not evict, and how often it applies."""

    reason: Annotated[_ReasonWord, described("The reason as one word.")]
    groups: Annotated[_Count, described("Violated spread groups that stay violated for this reason.")] = 0
    pods: Annotated[_Count, described("Pods whose eviction would help, and that stay for this reason.")] = 0


class RememberedBackOff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spread group in back-off, because moves did not improve it. The next leader reads this."""

    group: Annotated[str, Meta(max_length=64, description="A digest of the group: its constraint and its pods.")]
    failures: Annotated[int, Meta(ge=0, le=MAX_FAILURES, description="Moves in a row that did not improve it.")]
    until: Annotated[Moment, described("When the back-off ends if the situation does not change.")]
    situation: Annotated[str, Meta(max_length=64, description="A digest of the situation when the last move failed.")]


class RecentEvictions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of evictions in one minute."""

    minute: Annotated[Moment, described("The start of the minute.")]
    evictions: Annotated[_Count, described("Evictions in that minute that count for limits.perHour.")]


class GroupEvictionCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of evictions for one spread group within the last hour. The next leader reads this."""

    group: Annotated[str, Meta(max_length=64, description="A digest of the group, as in backOffs.")]
    evictions: Annotated[_Count, described("Evictions within the last hour, whatever their outcome.")]
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


class PolicyStatus(Recorded, frozen=True, kw_only=True, rename="camel"):
    """What Respread knows and does for the policy. Respread writes it, and only when it changes."""

    observed_generation: Annotated[
        _Generation, described("The metadata.generation of the policy that this status describes.")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Meta(
            max_length=MAX_CONDITIONS,
            description=(
                "Ready, Balanced, Progressing and Blocked. Reconciling, Stalled, Paused, Oscillating, CostsContested "
                "and OtherDescheduler after they were True once."
            ),
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    summary: Summary = Summary()
    violations: Annotated[
        tuple[Violation, ...],
        Meta(
            max_length=MAX_VIOLATIONS,
            description="The worst violated constraints, at most 20.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    blocked: Annotated[
        tuple[BlockedCount, ...],
        Meta(
            max_length=64,
            description="What Respread does not do, by reason, the most frequent first.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["reason"]},
        ),
    ] = ()
    last_plan_time: Annotated[
        Moment | None,
        described("When the plan in this status was made. Later plans had the same result."),
    ] = None
    last_eviction_time: Annotated[Moment | None, described("When a pod was last evicted.")] = None

    def condition(self, condition_type: ConditionType) -> Condition | None:
        """Return the condition of a type, or None if it was never written."""
        return next((each for each in self.conditions if each.type == condition_type), None)


def encode_status(status: PolicyStatus, *, with_record: bool = False) -> dict[str, Any]:
    """Return the status as JSON values for a merge patch of the `status` subresource.

    Empty lists and zeros are included, so that they overwrite old values and the printer columns show 0.

    Args:
        status: the status.
        with_record: whether it contains what belongs into the record, as in earlier versions. Otherwise that is null,
            so that what an earlier version left there is removed.
    """
    encoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    given = {name: value for name, value in encoded.items() if value is not None}
    if with_record:
        return given
    return given | {field.encode_name: None for field in msgspec.structs.fields(Recorded)}
