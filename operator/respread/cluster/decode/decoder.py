"""Decodes the API's JSON into Respread's own types: LIST pages, watch events, single objects.

The `decode_…` modules contain the rules of each kind; this module lists the kinds. An object that can't be decoded is
reported and left out. It never stops the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from immutables import Map

from respread.api.json_documents import decode_map, decoded
from respread.cluster.decode.nodes import WireNode, decode_node
from respread.cluster.decode.outlines import outline_of
from respread.cluster.decode.pods import PodDecoder, RawPod
from respread.cluster.decode.storage import (
    WireClaim,
    WireCSINode,
    WirePersistentVolume,
    WireStorageClass,
    decode_claim,
    decode_csi_node,
    decode_persistent_volume,
    decode_storage_class,
)
from respread.cluster.decode.workloads import (
    WireBudget,
    WireNamespace,
    WireQuota,
    WireReplicationController,
    WireService,
    WireWorkload,
    decode_budget,
    decode_namespace,
    decode_quota,
    decode_replication_controller,
    decode_service,
    decode_workload,
)
from respread.cluster.interning import Interning
from respread.cluster.objects import READING_ERRORS, DecodeError, FieldError, ReadingError, field_error_of
from respread.cluster.state import StateObject

_T = TypeVar("_T")


class ListDocument(msgspec.Struct, frozen=True):
    """A page of a LIST."""

    items: list[msgspec.Raw]
    remainder: bytes
    """The same document with every member unchanged, but without items."""


class NotAListError(ValueError):
    """A document that is not a LIST: a Status, a Table, or not a JSON object."""


def split_list(body: bytes) -> ListDocument:
    """Split a page of a LIST.

    Raises:
        NotAListError: the document is something else.
    """
    try:
        members = decoded(partial(msgspec.json.decode, type=dict[str, msgspec.Raw]), body)
        items = msgspec.json.decode(members["items"], type=list[msgspec.Raw] | None)
    except KeyError:
        raise NotAListError("there are no items in the document: it is not a list") from None
    except READING_ERRORS as error:
        raise NotAListError(f"it is not a list in JSON: {field_error_of(error)}") from error
    members["items"] = msgspec.Raw(b"[]")
    return ListDocument(items or [], msgspec.json.encode(members))


class Kind(NamedTuple):
    """A kind of the API that Respread decodes."""

    resource: str
    """The plural name, as in paths: `pods`."""
    group: str
    """Empty for the core group."""
    version: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """Group and version as in objects: `apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The path that lists all objects of the kind: `/apis/apps/v1/replicasets`."""
        return f"{self._root}/{self.resource}"

    @property
    def path_in_namespace(self) -> str:
        """The path that lists the objects of a namespace, as a template: `/api/v1/namespaces/{namespace}/pods`."""
        return f"{self._root}/namespaces/{{namespace}}/{self.resource}"

    @property
    def _root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


KINDS: Final[Mapping[str, Kind]] = Map(
    {
        kind.resource: kind
        for kind in (
            Kind("pods", "", "v1", "Pod", namespaced=True),
            Kind("nodes", "", "v1", "Node", namespaced=False),
            Kind("namespaces", "", "v1", "Namespace", namespaced=False),
            Kind("services", "", "v1", "Service", namespaced=True),
            Kind("replicationcontrollers", "", "v1", "ReplicationController", namespaced=True),
            Kind("persistentvolumeclaims", "", "v1", "PersistentVolumeClaim", namespaced=True),
            Kind("persistentvolumes", "", "v1", "PersistentVolume", namespaced=False),
            Kind("poddisruptionbudgets", "policy", "v1", "PodDisruptionBudget", namespaced=True),
            Kind("resourcequotas", "", "v1", "ResourceQuota", namespaced=True),
            Kind("replicasets", "apps", "v1", "ReplicaSet", namespaced=True),
            Kind("statefulsets", "apps", "v1", "StatefulSet", namespaced=True),
            Kind("storageclasses", "storage.k8s.io", "v1", "StorageClass", namespaced=False),
            Kind("csinodes", "storage.k8s.io", "v1", "CSINode", namespaced=False),
        )
    }
)
"""The kinds that Respread decodes, by plural resource name."""


class Page(msgspec.Struct, Generic[_T], frozen=True):
    """The content of a page of a LIST."""

    items: list[_T]
    errors: list[DecodeError]
    """One for each object that was left out."""
    remainder: bytes
    """The same document with its metadata, but without items."""


class _Identity(msgspec.Struct):
    namespace: Any = ""
    name: Any = ""


class _Identified(msgspec.Struct):
    metadata: _Identity = msgspec.field(default_factory=_Identity)


_identify: Final = msgspec.json.Decoder(_Identified).decode


class Decoder:
    """Decodes objects. Parts that objects share are kept as one object while they are in use.

    Use one decoder for everything in one `ClusterState`, so that pods of one template have the same `PodSpec` object.
    """

    def __init__(self) -> None:
        self._interning = interning = Interning()
        self._decoders: Mapping[str, Callable[[bytes | msgspec.Raw], StateObject]] = {
            "pods": _decoder(RawPod, PodDecoder(interning).decode),
            "nodes": _interning_decoder(WireNode, decode_node, interning),
            "namespaces": _interning_decoder(WireNamespace, decode_namespace, interning),
            "services": _interning_decoder(WireService, decode_service, interning),
            "replicationcontrollers": _interning_decoder(
                WireReplicationController, decode_replication_controller, interning
            ),
            "replicasets": _interning_decoder(WireWorkload, decode_workload, interning),
            "statefulsets": _interning_decoder(WireWorkload, decode_workload, interning),
            "poddisruptionbudgets": _decoder(WireBudget, decode_budget),
            "resourcequotas": _decoder(WireQuota, decode_quota),
            "persistentvolumeclaims": _interning_decoder(WireClaim, decode_claim, interning),
            "persistentvolumes": _interning_decoder(WirePersistentVolume, decode_persistent_volume, interning),
            "storageclasses": _interning_decoder(WireStorageClass, decode_storage_class, interning),
            "csinodes": _interning_decoder(WireCSINode, decode_csi_node, interning),
        }

    def decode_page(self, resource: str, body: bytes) -> Page[StateObject]:
        """Decode a page of a LIST from the API server.

        Raises:
            DecodeError: the document is not a list.
        """
        decode = self._decoders[resource]
        try:
            document = split_list(body)
        except NotAListError as error:
            raise DecodeError(resource, "", "", "", str(error)) from error
        items: list[StateObject] = []
        errors: list[DecodeError] = []
        for raw in document.items:
            try:
                items.append(decode(raw))
            except (FieldError, *READING_ERRORS) as error:
                errors.append(self._decode_error(resource, raw, error))
        return Page(items, errors, document.remainder)

    def decode_object(self, resource: str, obj: Mapping[str, Any] | bytes) -> StateObject:
        """Decode one object from JSON or from decoded JSON. `resource` is one of `KINDS`.

        Raises:
            DecodeError: the API would not accept its content.
        """
        raw = obj if isinstance(obj, bytes) else msgspec.json.encode(obj if isinstance(obj, dict) else dict(obj))
        try:
            return self._decoders[resource](raw)
        except (FieldError, *READING_ERRORS) as error:
            fault = self._decode_error(resource, raw, error)
        raise fault  # outside, so that it does not keep the other exception alive

    def _decode_error(self, resource: str, raw: bytes | msgspec.Raw, error: FieldError | ReadingError) -> DecodeError:
        fault = error if isinstance(error, FieldError) else field_error_of(error)
        try:
            identity = decoded(_identify, raw).metadata
        except READING_ERRORS:
            identity = _Identity()
        namespace, name = (each if isinstance(each, str) else "" for each in (identity.namespace, identity.name))
        outline = outline_of(resource, raw, fault, self._interning, self._decoders[resource])
        return DecodeError(resource, namespace, name, fault.path, fault.message, outline)


def _decoder(
    wire_type: type[Any], convert: Callable[[Any], StateObject]
) -> Callable[[bytes | msgspec.Raw], StateObject]:
    parse = msgspec.json.Decoder(wire_type, dec_hook=decode_map).decode

    def decode(raw: bytes | msgspec.Raw) -> StateObject:
        return convert(decoded(parse, raw))

    return decode


def _interning_decoder(
    wire_type: type[Any], convert: Callable[[Any, Interning], StateObject], interning: Interning
) -> Callable[[bytes | msgspec.Raw], StateObject]:
    return _decoder(wire_type, lambda wire: convert(wire, interning))
