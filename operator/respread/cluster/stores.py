"""The kinds that Respread watches, where their objects are stored, and how they are decoded before.

ReplicaSets, StatefulSets and ReplicationControllers are not among them: there may be hundreds of thousands, and few
ever matter. They are read when needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from immutables import Map

from respread.api.decoding import NotAPolicyError, decode_policy, decode_status
from respread.api.json_documents import decoded
from respread.api.policy import GROUP, PLURALS, VERSION, Policy, PolicyKind
from respread.api.record import RECORD_KINDS, RECORD_PLURALS, Recorded, decode_record
from respread.api.status import PolicyStatus
from respread.cluster.decode.decoder import KINDS, Decoder, Kind, NotAListError, Page, split_list
from respread.cluster.decode.metadata import WireIdentity
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import DecodeError, Unread
from respread.cluster.state import ClusterState, StateObject, with_changes

T = TypeVar("T")


class Replaced(NamedTuple):
    """The effect of a complete list: how many objects have changed and how many of them are gone."""

    changed: int
    gone: int
    noted: bool
    """Whether what is known of undecodable objects has changed."""


class KindStore(ABC):
    """Decodes and stores the objects of one kind."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self.undecodable: Map[ObjectKey, DecodeError] = Map()
        """The objects of which only an older version, or nothing, is known, and why."""

    def decode_page(self, body: bytes) -> Page[tuple[ObjectKey, Any]]:
        """Decode a page of a LIST, each object with its key.

        Raises:
            DecodeError: if it is not a list.
        """
        try:
            document = split_list(body)
        except NotAListError as error:
            raise DecodeError(self._resource, "", "", "", str(error)) from error
        objects: list[tuple[ObjectKey, object]] = []
        errors: list[DecodeError] = []
        for raw in document.items:
            try:
                objects.append(self.decode_object(bytes(raw)))
            except DecodeError as error:
                errors.append(error)
        return Page(objects, errors, document.remainder)

    @abstractmethod
    def decode_object(self, document: bytes) -> tuple[ObjectKey, Any]:
        """Decode one object from JSON.

        Raises:
            DecodeError: if it can't be decoded.
        """

    @abstractmethod
    def held(self) -> Collection[ObjectKey]:
        """Return the keys of all stored objects."""

    @abstractmethod
    def holds(self, key: ObjectKey, content: Any) -> bool:
        """Return whether exactly this object is stored."""

    @abstractmethod
    def apply(self, changes: Iterable[tuple[ObjectKey, Any]]) -> int:
        """Store objects, remove those with None, and return how many changed."""

    def replace(self, listed: Mapping[ObjectKey, Any], faults: Mapping[ObjectKey, DecodeError]) -> Replaced:
        """Store the objects of a complete list, remove all others, and note which can't be decoded.

        Of these, the last decoded versions are kept.
        """
        gone = [(key, None) for key in self.held() if key not in listed and key not in faults]
        changed = self.apply([*gone, *listed.items()])
        decodable = ((key, None) for key in self.undecodable if key not in faults)
        noted = self.note_undecodable([*decodable, *faults.items()])
        return Replaced(changed, len(gone), noted)

    def note_undecodable(self, faults: Iterable[tuple[ObjectKey, DecodeError | None]]) -> bool:
        """Note which objects can't be decoded, None for those that can be or are gone; return whether that matters."""
        told = [
            (key, fault and fault.with_traceback(None))  # Its frames hold the document.
            for key, fault in faults
            if fault is not None or key in self.undecodable
        ]
        self.undecodable, changed = with_changes(self.undecodable, told)
        return bool(changed) and self._take_outlines(told)

    def _take_outlines(self, faults: list[tuple[ObjectKey, DecodeError | None]]) -> bool:
        """Store what is known of objects that can't be decoded, and return whether that has changed.

        By default nothing is stored, and the last decoded versions are kept.
        """
        del faults
        return False


class StateKindStore(KindStore):
    """Pods, nodes and all other objects in the cluster state."""

    def __init__(self, resource: str, decoder: Decoder, state: ClusterState) -> None:
        super().__init__(resource)
        self._decoder = decoder
        self._state = state

    def decode_page(self, body: bytes) -> Page[tuple[ObjectKey, Any]]:
        """Decode a page of a LIST."""
        page = self._decoder.decode_page(self._resource, body)
        return Page([(each.key, each) for each in page.items], page.errors, page.remainder)

    def decode_object(self, document: bytes) -> tuple[ObjectKey, StateObject]:
        """Decode one object."""
        decoded = self._decoder.decode_object(self._resource, document)
        return decoded.key, decoded

    def held(self) -> Collection[ObjectKey]:
        """Return the keys of all stored objects."""
        return self._state.keys(self._resource)

    def holds(self, key: ObjectKey, content: Any) -> bool:
        """Return whether exactly this object is stored."""
        return bool(self._state.get(self._resource, key) == content)

    def apply(self, changes: Iterable[tuple[ObjectKey, StateObject | None]]) -> int:
        """Store objects, and remove those with None."""
        return self._state.apply(self._resource, changes)

    def _take_outlines(self, faults: list[tuple[ObjectKey, DecodeError | None]]) -> bool:
        """Store what is known about objects that can't be decoded in full.

        The last version that could be decoded is kept, unless everything that determines the pod's room on its node was
        decoded.
        """
        unread: list[tuple[ObjectKey, Unread | None]] = []
        known: list[tuple[ObjectKey, StateObject]] = []
        held = self._state.keys(self._resource)
        for key, fault in faults:
            outline = None if fault is None else fault.outline
            unread.append((key, None if outline is None else outline.unread))
            if (
                outline is not None
                and outline.known is not None
                and (key not in held or outline.unread.node_name == "")
            ):
                known.append((key, outline.known))
        changed = self._state.apply(self._resource, known)
        return self._state.note_unread(self._resource, unread) or bool(changed)


Policies: TypeAlias = Map[str, Policy]
"""Policies by `Policy.name`."""


class PolicyObject(NamedTuple):
    """A policy and its last known status."""

    policy: Policy
    status: PolicyStatus


class PolicyStore:
    """All policies of both kinds, by `Policy.name`."""

    def __init__(self) -> None:
        self.policies: Policies = Map()
        """The policies as they are now. Later changes don't affect the returned value."""
        self.statuses: Map[str, PolicyStatus] = Map()
        """The last known statuses, by the policies' names."""

    def current(self, name: str) -> Policy | None:
        """Return the policy with that name, or None."""
        return self.policies.get(name)

    def keys(self, kind: PolicyKind) -> Collection[ObjectKey]:
        """Return the keys of the policies of one kind. Those of ClusterRebalancePolicies have an empty namespace."""
        return [_key(policy) for policy in self.policies.values() if policy.kind == kind]

    def apply(self, changes: Iterable[tuple[ObjectKey, PolicyObject | None]]) -> int:
        """Apply changes, None for deleted policies, and return how many policies changed in more than their status.

        Names of the two kinds are always different, because only the name of a RebalancePolicy contains a slash.
        """
        policies, statuses, changed = self.policies.mutate(), self.statuses.mutate(), 0
        for key, new in changes:
            name = str(key)
            if new is None:
                statuses.pop(name, None)
                changed += policies.pop(name, None) is not None
                continue
            statuses[name] = new.status
            if policies.get(name) != new.policy:
                policies[name] = new.policy
                changed += 1
        self.statuses = statuses.finish()
        if changed:  # Otherwise it stays the same object, so that values derived from it stay valid.
            self.policies = policies.finish()
        return changed


def _key(policy: Policy) -> ObjectKey:
    return ObjectKey(policy.namespace, policy.object_name)


class PolicyKindStore(KindStore):
    """The policies of one of the two kinds. Errors in a policy are among its problems."""

    def __init__(self, kind: PolicyKind, store: PolicyStore) -> None:
        super().__init__(PLURALS[kind])
        self._kind = kind
        self._store = store

    def decode_object(self, document: bytes) -> tuple[ObjectKey, PolicyObject]:
        """Decode one policy. Errors in its spec become problems of the policy and raise nothing."""
        try:
            read = decoded(msgspec.json.decode, document)
            policy = decode_policy(self._kind, read)
        except (NotAPolicyError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(self._resource, "", "", "", str(error)) from error
        return ObjectKey(policy.namespace, policy.object_name), PolicyObject(policy, decode_status(read))

    def held(self) -> Collection[ObjectKey]:
        """Return the keys of all policies of the kind."""
        return self._store.keys(self._kind)

    def holds(self, key: ObjectKey, content: PolicyObject) -> bool:
        """Return whether exactly this policy is stored, including its status."""
        name = str(key)
        return (self._store.policies.get(name), self._store.statuses.get(name)) == content

    def apply(self, changes: Iterable[tuple[ObjectKey, PolicyObject | None]]) -> int:
        """Store policies, and remove those with None."""
        return self._store.apply(changes)


class DecodedKindStore(KindStore, Generic[T]):
    """Objects of a kind that is no part of the cluster state, as the values that they are decoded to."""

    def __init__(self, kind: Kind, decode: Callable[[bytes], tuple[ObjectKey, T]]) -> None:
        super().__init__(kind.resource)
        self._decode = decode
        self.objects: Map[ObjectKey, T] = Map()

    @property
    def by_name(self) -> Map[str, T]:
        """The same, by names: `namespace/name`, or a name alone."""
        return Map({str(key): content for key, content in self.objects.items()})

    def decode_object(self, document: bytes) -> tuple[ObjectKey, T]:
        """Decode one object."""
        try:
            return self._decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(self._resource, "", "", "", str(error)) from error

    def held(self) -> Collection[ObjectKey]:
        """Return the keys of all stored objects."""
        return tuple(self.objects)

    def holds(self, key: ObjectKey, content: T) -> bool:
        """Return whether exactly this object is stored."""
        return self.objects.get(key) == content

    def apply(self, changes: Iterable[tuple[ObjectKey, T | None]]) -> int:
        """Store objects, and remove those with None."""
        self.objects, changed = with_changes(self.objects, changes)
        return changed


def _decode_record(document: bytes) -> tuple[ObjectKey, Recorded]:
    """Return a policy's record, whose name is the policy's UID. What can't be read in its text counts as absent."""
    read = decoded(_read_record, document)
    return ObjectKey(read.metadata.namespace, read.metadata.name), decode_record(read.record)


class _WireRecord(msgspec.Struct):
    metadata: WireIdentity = msgspec.field(default_factory=WireIdentity)
    record: object = None


_read_record: Final = msgspec.json.Decoder(_WireRecord).decode


def _decode_priority_class(document: bytes) -> tuple[ObjectKey, int]:
    """Return the value of a PriorityClass. A policy that names one that can't be decoded evicts nothing."""
    wire = decoded(_read_priority_class, document)
    if type(wire.value) is not int:
        fault = f"must be a whole number, not {wire.value!r}"
        raise DecodeError(PRIORITY_CLASSES.resource, "", wire.metadata.name, "value", fault)
    return ObjectKey("", wire.metadata.name), wire.value


class _WirePriorityClass(msgspec.Struct):
    metadata: WireIdentity = msgspec.field(default_factory=WireIdentity)
    value: Any = None


_read_priority_class: Final = msgspec.json.Decoder(_WirePriorityClass).decode


NODES: Final = KINDS["nodes"]
PODS: Final = KINDS["pods"]
UNFINISHED_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector for pods. The scheduler never sees finished pods, and neither does Respread. If a pod finishes,
its watch reports a deletion."""

PRIORITY_CLASSES: Final = Kind("priorityclasses", "scheduling.k8s.io", "v1", "PriorityClass", namespaced=False)
CLUSTER_POLICIES: Final = Kind(
    PLURALS["ClusterRebalancePolicy"], GROUP, VERSION, "ClusterRebalancePolicy", namespaced=False
)
NAMESPACED_POLICIES: Final = Kind(PLURALS["RebalancePolicy"], GROUP, VERSION, "RebalancePolicy", namespaced=True)
POLICY_KINDS: Final = (CLUSTER_POLICIES, NAMESPACED_POLICIES)
_POLICY_KIND_NAMES: Final[tuple[tuple[Kind, PolicyKind], ...]] = (
    (CLUSTER_POLICIES, "ClusterRebalancePolicy"),
    (NAMESPACED_POLICIES, "RebalancePolicy"),
)
RECORDS: Final[Mapping[Kind, Kind]] = {
    kind: Kind(RECORD_PLURALS[name], GROUP, VERSION, RECORD_KINDS[name], namespaced=kind.namespaced)
    for kind, name in _POLICY_KIND_NAMES
}
"""The kind of the records of each kind of policy. The operator reads them when it begins to lead."""

_STATE_KINDS: Final = (
    PODS,
    *(
        KINDS[resource]
        for resource in (
            "nodes",
            "namespaces",
            "services",
            "persistentvolumeclaims",
            "persistentvolumes",
            "poddisruptionbudgets",
            "storageclasses",
            "csinodes",
        )
    ),
)


def watched_kinds(*, namespaced_policies: bool = True) -> tuple[Kind, ...]:
    """Return the watched kinds. Without `namespaced_policies`, RebalancePolicies are ignored."""
    policies = POLICY_KINDS if namespaced_policies else (CLUSTER_POLICIES,)
    return (*_STATE_KINDS, PRIORITY_CLASSES, *policies)


def full_name(kind: Kind) -> str:
    """Return a kind's resource as in messages of kubectl and RBAC: `pods`, `poddisruptionbudgets.policy`."""
    return f"{kind.resource}.{kind.group}" if kind.group else kind.resource


class Stores:
    """The stores of all kinds."""

    def __init__(self) -> None:
        self.decoder = Decoder()
        """Use it for everything in `state`, so that it shares what pods share."""
        self.state = ClusterState()
        self.policies = PolicyStore()
        self.priority_classes = DecodedKindStore(PRIORITY_CLASSES, _decode_priority_class)
        self.records = {kind: DecodedKindStore(kind, _decode_record) for kind in RECORDS.values()}
        """Those of policies, by their own kinds. Commands read them; the operator reads them when it begins to lead."""
        self.by_kind: Mapping[Kind, KindStore] = {
            **{kind: StateKindStore(kind.resource, self.decoder, self.state) for kind in KINDS.values()},
            **{kind: PolicyKindStore(name, self.policies) for kind, name in _POLICY_KIND_NAMES},
            **self.records,
            PRIORITY_CLASSES: self.priority_classes,
        }
