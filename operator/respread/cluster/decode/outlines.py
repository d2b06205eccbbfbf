"""What can be decoded of a pod or node that can't be decoded in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from respread.api.json_documents import decoded
from respread.cluster.interning import Interning
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import READING_ERRORS, FieldError, Node, Outline, Unread
from respread.cluster.pod import Pod, PodSpec

_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_ANTI_AFFINITY: Final = b'"podAntiAffinity"'


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: msgspec.Raw = msgspec.Raw()


class _Spec(msgspec.Struct, rename="camel"):
    node_name: Any = ""
    affinity: msgspec.Raw = msgspec.Raw()


class _Status(msgspec.Struct):
    phase: Any = "Running"


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_read: Final = msgspec.json.Decoder(_Object).decode


def outline_of(  # noqa: PLR0911 - one for each thing that may be in the way
    resource: str, raw: bytes | msgspec.Raw, fault: FieldError, interning: Interning, decode: Callable[[bytes], Any]
) -> Outline:
    """Return the known parts of an object that can't be decoded in full."""
    try:
        found = decoded(_read, raw)
    except READING_ERRORS:
        return Outline(Unread(f"{resource}: {fault}", None, labels_read=False))
    metadata = found.metadata
    said = f"{resource} {ObjectKey(metadata.namespace, metadata.name)}: {fault}"
    if resource == "pods" and fault.path.startswith("metadata.labels"):
        return _without_labels(raw, said, decode)
    try:
        labels = interning.labels_of(metadata.labels)
    except FieldError:
        return Outline(Unread(said, _node_of(found), labels_read=False))
    if resource == "nodes":
        return Outline(Unread(said), Node(name=metadata.name, uid=metadata.uid, labels=labels, ready=False))
    if resource != "pods":
        return Outline(Unread(said))
    node, phase = found.spec.node_name, found.status.phase
    if not isinstance(node, str) or not isinstance(phase, str):
        return Outline(Unread(said, None))
    if not node:  # It uses nothing yet and does not count anywhere.
        return Outline(Unread(said))
    pod = Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        spec=PodSpec(),
        labels=labels,
        node_name=node,
        phase=phase,
    )
    return Outline(Unread(said, _node_of(found)), pod)


def _without_labels(raw: bytes | msgspec.Raw, said: str, decode: Callable[[bytes], Any]) -> Outline:
    """Decode a pod without its labels, so that it is known what it uses of its node."""
    try:
        document = decoded(msgspec.json.decode, raw)
        del document["metadata"]["labels"]
        return Outline(Unread(said, labels_read=False), decode(msgspec.json.encode(document)))
    except (FieldError, *READING_ERRORS):
        return Outline(Unread(said, None, labels_read=False))


def _node_of(found: _Object) -> str | None:
    node = found.spec.node_name
    if found.status.phase in _FINISHED:
        return ""
    if not isinstance(node, str) or (node and _ANTI_AFFINITY in bytes(found.spec.affinity)):
        return None
    return node
