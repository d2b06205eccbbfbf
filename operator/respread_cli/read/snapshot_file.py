"""Snapshot files: a cluster as one JSON List, as `respread snapshot` and `kubectl get -o json` write it.

Users attach them to bug reports: what `respread snapshot` writes has nothing that may be secret and does not matter.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from respread.api.policy import NAMESPACE_NAME_LABEL
from respread.cluster.decode.decoder import KINDS, Kind
from respread.cluster.meta import (
    BIND_COMPLETED,
    MIGRATED_PLUGINS,
    MIRROR,
    POD_DELETION_COST,
    SELECTED_NODE,
    STORAGE_CLASS,
    kept_annotations,
)
from respread.cluster.objects import DecodeError
from respread.cluster.stores import full_name
from respread.program.command_line import CommandError
from respread_cli.read.cluster_view import READ_KINDS, Gathering, ReadCluster

STANDARD_INPUT: Final = "-"
ABOUT: Final = "respread.dev/snapshot"
"""The member of the document with its origin. A document of kubectl has none."""
GZIP_MAGIC: Final = b"\x1f\x8b"

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
LEFT_OUT_OF_CONTAINERS: Final = frozenset(
    {"args", "command", "env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"}
)
"""Where users put passwords and tokens. Probes and hooks have commands and HTTP headers."""
_KEPT_ANNOTATIONS: Final = frozenset({BIND_COMPLETED, MIGRATED_PLUGINS, MIRROR, SELECTED_NODE, STORAGE_CLASS})

_BY_API_KIND: Final[Mapping[tuple[str, str], Kind]] = {(kind.api_version, kind.kind): kind for kind in READ_KINDS}
_NEEDED: Final = (KINDS["nodes"], KINDS["pods"])
_ASK_KUBECTL: Final = "kubectl get pods,nodes,namespaces,pdb,pvc,pv,sc,csinodes,services -A -o json"


class About(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The origin of a snapshot."""

    taken_at: datetime
    """When the first list was requested."""
    source: str = ""
    namespace: str = "default"
    """The current namespace of the user."""
    server_version: str = ""
    """Of the API server. Its scheduler has the bugs of that version."""
    respread_version: str = ""
    notes: tuple[str, ...] = ()
    """What could not be read."""


class _Document(msgspec.Struct):
    api_version: Any = msgspec.field(default=None, name="apiVersion")
    kind: Any = None
    items: list[msgspec.Raw] | None = None
    about: About | None = msgspec.field(default=None, name=ABOUT)


class _ItemKind(msgspec.Struct):
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""


def read_snapshot(file: str) -> ReadCluster:
    """Read a snapshot file, compressed or not. `-` is standard input.

    Raises:
        CommandError: it can't be read. The message names the item and the field.
    """
    name = "standard input" if file == STANDARD_INPUT else file
    document = _document(name, _content(file, name))
    gathering, found = Gathering(), dict[Kind, int]()
    objects: dict[Kind, list[tuple[Any, Any]]] = {}
    for position, kind, raw in _items(name, document):
        try:
            objects.setdefault(kind, []).append(gathering.by_kind[kind].decode_object(bytes(raw)))
        except DecodeError as error:
            raise CommandError(f"{name}: items[{position}]: {error}.") from error
    for kind, read in objects.items():
        gathering.by_kind[kind].apply(read)
        found[kind] = len(read)
    notes = _missing(name, found, document.about)
    if KINDS["namespaces"] not in found:
        _take_names_of_namespaces(gathering, objects.get(KINDS["pods"], []))
    about = document.about
    return gathering.view(
        time=datetime.now(UTC) if about is None else about.taken_at,
        source=name if about is None else f"{name}, {about.source}",
        namespace="default" if about is None else about.namespace,
        server_version="" if about is None else about.server_version,
        notes=notes,
    )


def _content(file: str, name: str) -> bytes:
    try:
        content = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CommandError(f"{name} is a broken gzip file: {error}.") from error
    except OSError as error:
        raise CommandError(f"{name} can't be read: {error.strerror or error}.") from error


def _document(name: str, content: bytes) -> _Document:
    if not content.strip():
        raise CommandError(f"{name} is empty. A snapshot is what `respread snapshot` or `{_ASK_KUBECTL}` writes.")
    try:
        document = msgspec.json.decode(content, type=_Document)
    except msgspec.ValidationError as error:
        raise CommandError(f"{name} is not a snapshot: {error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{name} is not JSON: {error}. From kubectl, take -o json.") from error
    if document.items is None:
        of = f" but a {document.kind}" if isinstance(document.kind, str) else ""
        raise CommandError(
            f"{name} is not a List{of}: a snapshot is what `respread snapshot` or `{_ASK_KUBECTL}` writes."
        )
    return document


def _items(name: str, document: _Document) -> Iterator[tuple[int, Kind, msgspec.Raw]]:
    """Return the items that Respread reads, with their position and kind. `kubectl get --raw` omits kinds."""
    list_kind = document.kind if isinstance(document.kind, str) else ""
    list_version = document.api_version if isinstance(document.api_version, str) else ""
    for position, raw in enumerate(document.items or ()):
        try:
            said = msgspec.json.decode(raw, type=_ItemKind)
        except msgspec.DecodeError as error:
            raise CommandError(f"{name}: items[{position}] is not an object of Kubernetes: {error}.") from error
        kind = _BY_API_KIND.get((said.api_version or list_version, said.kind or list_kind.removesuffix("List")))
        if kind is not None:
            yield position, kind, raw


def _missing(name: str, found: Mapping[Kind, int], about: About | None) -> list[str]:
    """Return notes about kinds that the file does not contain."""
    if about is not None:
        return list(about.notes)  # what is not in it was not in the cluster
    needed = [full_name(kind) for kind in _NEEDED if kind not in found]
    if needed:
        raise CommandError(
            f"{name} holds no {' and no '.join(needed)}, and without them there is no spread. Write one by `respread "
            f"snapshot`, or `{_ASK_KUBECTL}`."
        )
    if KINDS["poddisruptionbudgets"] not in found:
        return [f"{name} holds no PodDisruptionBudgets; if the cluster has some, a plan made from it does not know."]
    return []


def _take_names_of_namespaces(gathering: Gathering, pods: list[tuple[Any, Any]]) -> None:
    """Add the namespaces of the pods, labeled only by name, because policies only select existing namespaces."""
    names = sorted({key.namespace for key, _ in pods})
    store = gathering.by_kind[KINDS["namespaces"]]
    manifests = [{"metadata": {"name": name, "labels": {NAMESPACE_NAME_LABEL: name}}} for name in names]
    store.apply([store.decode_object(msgspec.json.encode(each)) for each in manifests])


def snapshot_content(kind: Kind, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as in a snapshot, with its kind, which items of a LIST don't have."""
    content = {**item, "apiVersion": kind.api_version, "kind": kind.kind}
    if isinstance(metadata := item.get("metadata"), Mapping):
        content["metadata"] = _metadata(metadata)
    if isinstance(spec := item.get("spec"), Mapping):
        content["spec"] = _spec(spec)
    return content


def _metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in metadata.items() if name not in {"annotations", "managedFields"}}
    if isinstance(annotations := metadata.get("annotations"), Mapping):
        wanted = kept_annotations(annotations) | {
            name: value for name, value in annotations.items() if name in _KEPT_ANNOTATIONS
        }
        if wanted:
            kept["annotations"] = wanted
        if POD_DELETION_COST in wanted and (owners := _owners_of_cost(metadata.get("managedFields"))):
            kept["managedFields"] = owners
    return kept


def _owners_of_cost(managed_fields: Any) -> list[dict[str, Any]]:
    """Return the owners of a pod's deletion cost, which show whether it is ours, and none of their other fields."""
    if not isinstance(managed_fields, list):
        return []
    field = f"f:{POD_DELETION_COST}"
    return [
        {
            **{name: entry[name] for name in ("manager", "operation") if name in entry},
            "fieldsV1": {"f:metadata": {"f:annotations": {field: {}}}},
        }
        for entry in managed_fields
        if isinstance(entry, Mapping) and field in _annotations_owned(entry)
    ]


def _annotations_owned(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    owned: Any = entry
    for name in ("fieldsV1", "f:metadata", "f:annotations"):
        owned = owned.get(name) if isinstance(owned, Mapping) else None
    return owned if isinstance(owned, Mapping) else {}


def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod, or of an object with a pod template. Any other stays unchanged."""
    content = dict(spec)
    for containers in CONTAINERS:
        if isinstance(listed := spec.get(containers), list):
            content[containers] = [_container(each) for each in listed]
    if isinstance(template := spec.get("template"), Mapping):
        content["template"] = {
            **template,
            **({"metadata": _metadata(template["metadata"])} if isinstance(template.get("metadata"), Mapping) else {}),
            **({"spec": _spec(template["spec"])} if isinstance(template.get("spec"), Mapping) else {}),
        }
    return content


def _container(container: Any) -> Any:
    if not isinstance(container, Mapping):
        return container
    return {name: value for name, value in container.items() if name not in LEFT_OUT_OF_CONTAINERS}
