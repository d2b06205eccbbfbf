"""What the leader of an operator records about a policy for the next leader, in an object beside the policy.

The record is no part of the status: users read that, and only Respread reads this. It is one text, JSON in a field of
its object, because only Respread writes it, and whole. As fields of their own, its parts would be checked against a
schema and listed in `metadata.managedFields` one by one, which takes the API server about a millisecond per kilobyte.

Its size is bounded by that of its lists (`respread.api.recorded`), of which each keeps what matters most, and by
`MAX_RECORD_LENGTH`: a record that would be longer is not written, and no move is made that it would have to contain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from respread.api.clamping import read_clamped
from respread.api.nesting import decoded
from respread.api.policy import PolicyKind
from respread.api.recorded import FailuresInARow, Recorded
from respread.api.status import PolicyStatus

T = TypeVar("T")

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
NOTHING: Final = Recorded()
_FIELDS: Final = Recorded.__struct_fields__


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


def record_of(status: PolicyStatus) -> Recorded:
    """Return what a status contains that belongs into the record."""
    return Recorded(**{name: getattr(status, name) for name in _FIELDS})


def with_record(status: PolicyStatus, record: Recorded) -> PolicyStatus:
    """Return a status with the contents of a record, and with nothing else that belongs into one."""
    return msgspec.structs.replace(status, **{name: getattr(record, name) for name in _FIELDS})


def with_former(record: Recorded, former: Recorded) -> Recorded:
    """Return a record with what a status contains besides, because an earlier version led in between.

    What is in both may be older in either. So no move and no back-off is left out, and the higher number counts: who
    may write a status, but no record, can make nothing forgotten.
    """
    return Recorded(
        back_offs=_joined(record.back_offs, former.back_offs, lambda each: each.group, lambda each: each.failures),
        recent_evictions=_joined(
            record.recent_evictions, former.recent_evictions, lambda each: each.minute, lambda each: each.evictions
        ),
        group_evictions=_joined(
            record.group_evictions, former.group_evictions, lambda each: each.group, lambda each: each.evictions
        ),
        failures_in_a_row=_joined_failures(record.failures_in_a_row, former.failures_in_a_row),
        moves_in_flight=_joined(record.moves_in_flight, former.moves_in_flight, lambda each: each.uid, lambda _: 0),
        contested_costs=_joined(
            record.contested_costs, former.contested_costs, lambda each: each.replica_set, lambda each: each.times
        ),
    )


def _joined_failures(first: FailuresInARow, second: FailuresInARow) -> FailuresInARow:
    return FailuresInARow(
        workloads=max(first.workloads, second.workloads, key=len),
        pauses=max(first.pauses, second.pauses),
        paused_until=max((each for each in (first.paused_until, second.paused_until) if each), default=None),
    )


def _joined(
    first: tuple[T, ...], second: tuple[T, ...], key: Callable[[T], object], number: Callable[[T], int]
) -> tuple[T, ...]:
    found: dict[object, T] = {}
    for each in (*first, *second):
        known = found.get(key(each))
        if known is None or number(known) < number(each):
            found[key(each)] = each
    return tuple(found.values())


def encode_record(record: Recorded) -> str:
    """Return the text of a record. Parts that have their defaults are left out."""
    parts: dict[str, Any] = {
        field.encode_name: value
        for field in msgspec.structs.fields(record)
        if (value := getattr(record, field.name)) != field.default
    }
    return msgspec.json.encode(parts).decode()


def decode_record(text: object) -> Recorded:
    """Read the text of a record, with every field within its bounds. What can't be read counts as absent."""
    try:
        value = decoded(msgspec.json.decode, text.encode()) if isinstance(text, str) else None
    except (msgspec.DecodeError, UnicodeEncodeError):
        value = None
    return read_clamped(Recorded, value) or NOTHING
