"""Pods: what is each one's own, and which spec it shares."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache

import msgspec
from immutables import Map

from respread.api.maps import decode_map, encode_map
from respread.cluster.annotations import MIRROR, kept_annotations
from respread.cluster.decode_metadata import WireAmounts, WireMetadata, controller_of, nano_amounts
from respread.cluster.decode_pod_specs import WirePodSpec, WireResources, build_pod_spec, detach, requested, requests_of
from respread.cluster.interning import Interning
from respread.cluster.pod import Pod, Resources
from respread.cluster.requests import ContainerResize, Resize, requests_held, requests_of_spec


class WireContainerStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """The status of a container, as far as resizing in place goes."""

    name: str = ""
    resources: WireResources | None = None
    allocated_resources: WireAmounts | None = None


class WireCondition(msgspec.Struct, gc=False):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class WirePodStatus(msgspec.Struct, rename="camel"):
    """`status` of a pod."""

    phase: str = "Pending"
    nominated_node_name: str = ""
    conditions: list[WireCondition] | None = None
    container_statuses: list[WireContainerStatus] | None = None
    init_container_statuses: list[WireContainerStatus] | None = None
    resources: WireResources | None = None
    allocated_resources: WireAmounts | None = None


class WirePod(msgspec.Struct):
    """A pod as the API sends it."""

    metadata: WireMetadata
    spec: WirePodSpec = msgspec.field(default_factory=WirePodSpec)
    status: WirePodStatus = msgspec.field(default_factory=WirePodStatus)


class WireResize(msgspec.Struct, array_like=True):
    """What decides how much a pod that is being resized holds."""

    containers: list[WireContainerStatus]
    pod_level: WireContainerStatus | None
    infeasible: bool


class PodDecoder:
    """Makes pods of what the API sends, sharing what they have in common."""

    __slots__ = ("_encode", "_held", "_interning")

    def __init__(self, interning: Interning) -> None:
        self._interning = interning
        self._encode = msgspec.msgpack.Encoder(order="deterministic", enc_hook=encode_map).encode
        self._held: Callable[[bytes, bytes], Resources | None] = lru_cache(maxsize=8192)(_held_requests)

    def decode(self, wire: WirePod) -> Pod:
        """Return the pod.

        Raises:
            FieldError: a field holds what the API would not accept.
        """
        metadata, status, interning = wire.metadata, wire.status, self._interning
        controller = controller_of(metadata, interning)
        node_name = detach(
            wire.spec,
            metadata.name,
            of_daemon_set=controller is not None and controller.kind == "DaemonSet",
        )
        content = self._encode(wire.spec)
        spec = interning.spec(content)
        if spec is None:
            spec = interning.keep_spec(content, build_pod_spec(wire.spec))

        ready = infeasible = False
        for condition in status.conditions or ():
            if condition.type == "Ready":
                ready = condition.status == "True"
            elif condition.type == "PodResizePending":
                infeasible = condition.reason == "Infeasible"
        resize = _resize(status, infeasible=infeasible) if node_name else None

        annotations = metadata.annotations
        return Pod(
            namespace=sys.intern(metadata.namespace),
            name=metadata.name,
            uid=metadata.uid,
            spec=spec,
            labels=interning.labels(metadata.labels),
            annotations=interning.labels(kept_annotations(annotations)) if annotations else _NO_ANNOTATIONS,
            controller=controller,
            is_mirror=annotations is not None and MIRROR in annotations,
            node_name=sys.intern(node_name),
            nominated_node_name=sys.intern(status.nominated_node_name),
            phase=sys.intern(status.phase),
            ready=ready,
            creation_timestamp=metadata.creation_timestamp,
            deletion_timestamp=metadata.deletion_timestamp,
            held_requests=None if resize is None else self._held(content, self._encode(resize)),
        )


_NO_ANNOTATIONS: Map[str, str] = Map()


def _resize(status: WirePodStatus, *, infeasible: bool) -> WireResize | None:
    """Return what the status says of resources in force, if it says anything."""
    containers = [
        each
        for statuses in (status.container_statuses, status.init_container_statuses)
        for each in statuses or ()
        if each.resources is not None
    ]
    pod_level = None
    if status.resources is not None:
        pod_level = WireContainerStatus("", status.resources, status.allocated_resources)
    if not containers and pod_level is None:
        return None
    return WireResize(containers, pod_level, infeasible)


def _held_requests(spec_content: bytes, resize_content: bytes) -> Resources | None:
    """Return what a pod holds on its node, if that is not what its spec requests.

    A function of encoded parts, so that the answer is kept for all pods of a template: kubelets report resources in
    force for every container, resized or not.
    """
    requests = requests_of(msgspec.msgpack.decode(spec_content, type=WirePodSpec, dec_hook=decode_map))
    resize = msgspec.msgpack.decode(resize_content, type=WireResize)
    held = requests_held(
        requests,
        Resize(
            containers=tuple(_container_resize(each, "status.containerStatuses") for each in resize.containers),
            pod_level=None if resize.pod_level is None else _container_resize(resize.pod_level, "status"),
            infeasible=resize.infeasible,
        ),
    )
    return None if held == requests_of_spec(requests) else held


def _container_resize(status: WireContainerStatus, path: str) -> ContainerResize:
    at = f"{path}[{status.name}]" if status.name else path
    return ContainerResize(
        status.name,
        requested(status.resources, f"{at}.resources"),
        nano_amounts(status.allocated_resources, f"{at}.allocatedResources"),
    )
