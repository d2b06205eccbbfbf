"""Pods: their own fields, and the spec, labels and owner that they share."""

from __future__ import annotations

import sys
from datetime import datetime
from hashlib import blake2b

import msgspec

from respread.api.json_documents import decode_map
from respread.cluster.decode.metadata import Timestamp, WireCondition, nano_amounts, owner_of_annotation
from respread.cluster.decode.pod_content import ABSENT, PodContents, RawPodSpec, WireResources
from respread.cluster.decode.pod_specs import WirePodSpec, amounts_of, build_pod_spec, requests_of
from respread.cluster.interning import Interning
from respread.cluster.meta import (
    DO_NOT_DISRUPT,
    MIRROR,
    POD_DELETION_COST,
    SAFE_TO_EVICT_LOCAL_VOLUMES,
    kept_annotations,
)
from respread.cluster.objects import READING_ERRORS, field_error_of
from respread.cluster.pod import Pod, PodSpec, Resources
from respread.cluster.quantity import ContainerResize, Resize, requests_held, requests_of_spec

_MAX_HELD = 32768


class RawPodMetadata(msgspec.Struct, rename="camel"):
    """`metadata` of a pod. Parts that are looked up by their bytes are not decoded."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: msgspec.Raw = ABSENT
    annotations: dict[str, str] | None = None
    owner_references: msgspec.Raw = ABSENT
    managed_fields: msgspec.Raw = ABSENT
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None


class RawContainerStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """The status of a container, as far as in-place resizing needs it."""

    name: str = ""
    resources: msgspec.Raw = ABSENT
    allocated_resources: msgspec.Raw = ABSENT


class _WirePodCondition(WireCondition, gc=False, rename="camel"):
    last_transition_time: str | None = None


class _RawPodStatus(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    nominated_node_name: str = ""
    start_time: Timestamp | None = None
    conditions: list[_WirePodCondition] | None = None
    container_statuses: list[RawContainerStatus] | None = None
    init_container_statuses: list[RawContainerStatus] | None = None
    resources: msgspec.Raw = ABSENT
    allocated_resources: msgspec.Raw = ABSENT


class RawPod(msgspec.Struct):
    """A pod as the API sends it."""

    metadata: RawPodMetadata
    spec: RawPodSpec = msgspec.field(default_factory=RawPodSpec)
    status: _RawPodStatus = msgspec.field(default_factory=_RawPodStatus)


class RawResize(msgspec.Struct, rename="camel", omit_defaults=True):
    """The fields that determine how much a pod with in-place resizing holds; an undecoded `WireResize`."""

    container_statuses: list[RawContainerStatus] | None = None
    init_container_statuses: list[RawContainerStatus] | None = None
    resources: msgspec.Raw = ABSENT
    allocated_resources: msgspec.Raw = ABSENT
    infeasible: bool = False


class WireContainerStatus(msgspec.Struct, rename="camel"):
    """A decoded `RawContainerStatus`."""

    name: str = ""
    resources: WireResources | None = None
    allocated_resources: dict[str, str | int | float] | None = None


class WireResize(msgspec.Struct, rename="camel"):
    """A decoded `RawResize`."""

    container_statuses: list[WireContainerStatus] = []
    init_container_statuses: list[WireContainerStatus] = []
    resources: WireResources | None = None
    allocated_resources: dict[str, str | int | float] | None = None
    infeasible: bool = False


class PodDecoder:
    """Creates pods from JSON, and shares their common parts."""

    def __init__(self, interning: Interning) -> None:
        self._interning = interning
        self._contents = PodContents()
        self._encode = msgspec.json.Encoder().encode
        self._decode_spec = msgspec.json.Decoder(WirePodSpec, dec_hook=decode_map).decode
        self._decode_resize = msgspec.json.Decoder(WireResize).decode
        self._held: dict[bytes, Resources | None] = {}

    def decode(self, raw: RawPod) -> Pod:
        """Return the pod.

        Raises:
            FieldError: the API would reject the content of a field.
        """
        metadata, status, interning = raw.metadata, raw.status, self._interning
        controller = interning.controller(metadata.owner_references)
        annotations = metadata.annotations
        node_name, content = self._contents.detach(
            raw.spec,
            metadata.name,
            of_daemon_set=controller is not None and controller.kind == "DaemonSet",
            names_local_volumes=annotations is not None and SAFE_TO_EVICT_LOCAL_VOLUMES in annotations,
        )
        spec = interning.spec(content)
        if spec is None:
            spec = interning.keep_spec(content, self._build_spec(content))

        ready = infeasible = False
        ready_seconds = None
        disruption = ""
        for condition in status.conditions or ():
            if condition.type == "Ready":
                ready = condition.status == "True"
                if ready:
                    ready_seconds = _seconds_between(metadata.creation_timestamp, condition.last_transition_time)
            elif condition.type == "PodResizePending":
                infeasible = condition.reason == "Infeasible"
            elif condition.type == "DisruptionTarget" and condition.status == "True":
                disruption = sys.intern(condition.reason or "")

        cost_owner = None
        if annotations is not None and POD_DELETION_COST in annotations:
            cost_owner = owner_of_annotation(metadata.managed_fields, POD_DELETION_COST)

        return Pod(
            namespace=sys.intern(metadata.namespace),
            name=metadata.name,
            uid=metadata.uid,
            spec=spec,
            labels=interning.labels_of(metadata.labels),
            annotations=interning.labels(None if annotations is None else kept_annotations(annotations)),
            controller=controller,
            is_mirror=annotations is not None and MIRROR in annotations,
            node_name=sys.intern(node_name),
            nominated_node_name=sys.intern(status.nominated_node_name),
            phase=sys.intern(status.phase),
            ready=ready,
            ready_seconds=ready_seconds,
            disruption=disruption,
            creation_timestamp=metadata.creation_timestamp,
            deletion_timestamp=metadata.deletion_timestamp,
            start_time=status.start_time if annotations is not None and DO_NOT_DISRUPT in annotations else None,
            deletion_cost_is_ours=cost_owner is not None and cost_owner.ours,
            deletion_cost_writer="" if cost_owner is None else sys.intern(cost_owner.other),
            held_requests=self._held_requests(content, status, infeasible=infeasible) if node_name else None,
        )

    def _build_spec(self, content: bytes) -> PodSpec:
        return build_pod_spec(self._read_spec(content))

    def _read_spec(self, content: bytes) -> WirePodSpec:
        try:
            return self._decode_spec(content)
        except READING_ERRORS as error:
            raise field_error_of(error).within("spec") from error

    def _held_requests(self, content: bytes, status: _RawPodStatus, *, infeasible: bool) -> Resources | None:
        """Return what a pod holds on its node, if that differs from the requests of its spec.

        Kubelets report effective resources for every container, resized or not. So the result is stored for all pods of
        a template in the same state.
        """
        resize = RawResize(
            _with_resources(status.container_statuses),
            _with_resources(status.init_container_statuses),
            status.resources,
            status.allocated_resources,
            infeasible,
        )
        if not resize.container_statuses and not resize.init_container_statuses and resize.resources is ABSENT:
            return None
        encoded = self._encode(resize)
        key = blake2b(content + encoded, digest_size=16).digest()
        if key not in self._held:
            if len(self._held) >= _MAX_HELD:
                self._held.clear()
            self._held[key] = self._reckon_held(content, encoded)
        return self._held[key]

    def _reckon_held(self, content: bytes, encoded: bytes) -> Resources | None:
        requests = requests_of(self._read_spec(content))
        try:
            resize = self._decode_resize(encoded)
        except READING_ERRORS as error:
            raise field_error_of(error).within("status") from error
        pod_level = None
        if resize.resources is not None:
            pod_level = _container_resize(
                WireContainerStatus("", resize.resources, resize.allocated_resources), "status"
            )
        held = requests_held(
            requests,
            Resize(
                containers=(
                    *(_container_resize(each, "status.containerStatuses") for each in resize.container_statuses),
                    *(
                        _container_resize(each, "status.initContainerStatuses")
                        for each in resize.init_container_statuses
                    ),
                ),
                pod_level=pod_level,
                infeasible=resize.infeasible,
            ),
        )
        return None if held == requests_of_spec(requests) else held


def _seconds_between(first: datetime | None, second: str | None) -> int | None:
    """Return how many seconds are between two times; None if one is missing or can't be read, or the order is wrong."""
    if first is None or second is None:
        return None
    try:
        seconds = (datetime.fromisoformat(second) - first).total_seconds()
    except (ValueError, TypeError):
        return None
    return int(seconds) if seconds >= 0 else None


def _with_resources(statuses: list[RawContainerStatus] | None) -> list[RawContainerStatus] | None:
    """Return the statuses with effective resources. Allocated resources only count together with them."""
    return [each for each in statuses if each.resources is not ABSENT] or None if statuses else None


def _container_resize(status: WireContainerStatus, path: str) -> ContainerResize:
    at = f"{path}[{status.name}]" if status.name else path
    return ContainerResize(
        status.name,
        amounts_of(status.resources, "requests", f"{at}.resources"),
        nano_amounts(status.allocated_resources, f"{at}.allocatedResources"),
    )
