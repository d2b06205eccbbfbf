"""Keeps equal parts of many objects as one object, while they are in use."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from immutables import Map

from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.objects import READING_ERRORS, FieldError, field_error_of
from respread.cluster.pod import PodSpec

MAX_LABELS_BYTES: Final = 16_384
"""In bytes of JSON. An ordinary pod has a tenth of it. All labels are kept, because a selector may ask for any."""


_LONGEST_API_VERSION: Final = 253 + 1 + 63
_LONGEST_KIND: Final = 63
_LONGEST_NAME: Final = 253
_LONGEST_UID: Final = 64


class _Owner(msgspec.Struct, gc=False, rename="camel"):
    """An entry of `ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Interning:
    """Tables of parts that objects share. Unused parts disappear automatically.

    Parts are looked up by the bytes of their JSON, so that known ones are not decoded again. If the bytes are new, they
    are looked up by the hash of their content.
    """

    def __init__(self) -> None:
        self._labels: WeakValueDictionary[int, Labels] = WeakValueDictionary()
        self._labels_by_bytes: WeakValueDictionary[bytes, Labels] = WeakValueDictionary()
        self._owners: WeakValueDictionary[tuple[str, str, str, str], OwnerReference] = WeakValueDictionary()
        self._owners_by_bytes: WeakValueDictionary[bytes, OwnerReference] = WeakValueDictionary()
        self._specs: WeakValueDictionary[int, PodSpec] = WeakValueDictionary()
        self._specs_by_bytes: WeakValueDictionary[bytes, PodSpec] = WeakValueDictionary()
        self._decode_labels = msgspec.json.Decoder(dict[str, str] | None).decode
        self._decode_owners = msgspec.json.Decoder(list[_Owner] | None).decode

    def labels(self, labels: Mapping[str, str] | None) -> Labels:
        """Return the shared map with these labels (or annotations)."""
        if not labels:
            return _NO_LABELS
        made: Labels = Map({sys.intern(name): sys.intern(value) for name, value in labels.items()})
        kept = self._labels.get(hash(made))
        if kept is None or kept != made:
            kept = self._labels[hash(made)] = made
        return kept

    def labels_of(self, raw: msgspec.Raw) -> Labels:
        """Return the shared map with the labels of a JSON object; an empty one if nothing was sent.

        Raises:
            FieldError: they are not labels. The path is relative to the object's metadata.
        """
        content = bytes(raw)
        if not content:
            return _NO_LABELS
        if len(content) > MAX_LABELS_BYTES:
            raise FieldError("metadata.labels", f"{len(content)} bytes of labels are more than are kept of a pod")
        digest = _digest(content)
        kept = self._labels_by_bytes.get(digest)
        if kept is None:
            try:
                kept = self.labels(self._decode_labels(content))
            except READING_ERRORS as error:
                raise field_error_of(error).within("metadata.labels") from error
            self._labels_by_bytes[digest] = kept
        return kept

    def controller(self, raw: msgspec.Raw) -> OwnerReference | None:
        """Return the shared reference to the controller in a JSON array of `ownerReferences`.

        Raises:
            FieldError: they are not owner references. The path is relative to the object.
        """
        content = bytes(raw)
        if not content:
            return None
        kept = self._owners_by_bytes.get(content)
        if kept is None:
            try:
                owners = self._decode_owners(content)
            except READING_ERRORS as error:
                raise field_error_of(error).within("metadata.ownerReferences") from error
            owner = next((each for each in owners or () if each.controller), None)
            if owner is None:
                return None
            kept = self._owners_by_bytes[content] = self._owner(owner)
        return kept

    def _owner(self, owner: _Owner) -> OwnerReference:
        # The API server checks neither the length nor the content of these words. A longer one belongs to no object.
        api_version, kind = _word(owner.api_version, _LONGEST_API_VERSION), _word(owner.kind, _LONGEST_KIND)
        name, uid = _word(owner.name, _LONGEST_NAME), _word(owner.uid, _LONGEST_UID)
        key = (uid, name, kind, api_version)
        kept = self._owners.get(key)
        if kept is None:
            kept = OwnerReference(sys.intern(api_version), sys.intern(kind), name, uid)
            self._owners[key] = kept
        return kept

    def spec(self, content: bytes) -> PodSpec | None:
        """Return the spec that is stored for this content, if it is in use."""
        return self._specs_by_bytes.get(_digest(content))

    def keep_spec(self, content: bytes, spec: PodSpec) -> PodSpec:
        """Return the shared spec that equals this one, and store it for this content too."""
        kept = self._specs.get(hash(spec))
        if kept is None or kept != spec:
            kept = self._specs[hash(spec)] = spec
        self._specs_by_bytes[_digest(content)] = kept
        return kept


def _word(text: str, longest: int) -> str:
    """Return a word for statuses, metrics, logs and terminals: cut, and without control characters."""
    short = text[:longest]
    return short if short.isprintable() else "".join(each if each.isprintable() else "?" for each in short)


def _digest(content: bytes) -> bytes:
    """Return a digest for content that would take more memory than the value that it is the key of."""
    return blake2b(content, digest_size=16).digest()


_NO_LABELS: Labels = Map()
