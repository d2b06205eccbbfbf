"""The part of a pod that it shares with the others of its template."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from immutables import Map

from respread.cluster.csi_migration import InTreeSources, migrated
from respread.cluster.decode_metadata import WireAmounts, checked_selector, nano_amounts
from respread.cluster.errors import FieldError
from respread.cluster.pod import (
    HostPort,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)
from respread.cluster.requests import ContainerRequests, PodRequests, requests_of_spec
from respread.cluster.volumes import AWSElasticBlockStore, Disk, GCEPersistentDisk, ISCSIVolume, RBDVolume


class WireResources(msgspec.Struct, omit_defaults=True):
    """`resources` of a container or pod."""

    requests: WireAmounts | None = None


class WirePort(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """A port of a container; `container_port` and the name mean nothing here."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class WireContainer(msgspec.Struct, rename="camel", omit_defaults=True):
    """A container or init container."""

    name: str = ""
    resources: WireResources | None = None
    ports: list[WirePort] | None = None
    restart_policy: str | None = None


class _Claim(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    claim_name: str = ""


class _EmptyDir(msgspec.Struct, gc=False, omit_defaults=True):
    medium: str = ""


class _Present(msgspec.Struct, gc=False):
    pass


class _ISCSI(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    iqn: str = ""
    read_only: bool | None = False


class _RBD(msgspec.Struct, rename="camel", omit_defaults=True):
    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool | None = False


class WireVolume(InTreeSources, rename="camel", omit_defaults=True):
    """A volume, of the sources that decide something; of any other source it is empty but for its name."""

    name: str = ""
    persistent_volume_claim: _Claim | None = None
    ephemeral: _Present | None = None
    host_path: _Present | None = None
    empty_dir: _EmptyDir | None = None
    iscsi: _ISCSI | None = None
    rbd: _RBD | None = None


class _NodeAffinity(msgspec.Struct, rename="camel", omit_defaults=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _PodAffinity(msgspec.Struct, rename="camel", omit_defaults=True):
    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None,
        name="requiredDuringSchedulingIgnoredDuringExecution",
    )


class WireAffinity(msgspec.Struct, rename="camel", omit_defaults=True):
    """`affinity`; what is only preferred decides nothing here."""

    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class WirePodSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    """`spec` of a pod. Its encoding, once it is `detached`, is what makes two specs the same."""

    node_name: str = ""
    containers: list[WireContainer] = []
    init_containers: list[WireContainer] | None = None
    resources: WireResources | None = None
    overhead: WireAmounts | None = None
    volumes: list[WireVolume] | None = None
    node_selector: dict[str, str] | None = None
    affinity: WireAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    resource_claims: list[_Present] | None = None
    scheduling_gates: list[_Present] | None = None
    # Not of the API: what `detached` took out of the fields above.
    stateful_claims: list[str] | None = msgspec.field(default=None, name="respread.dev/statefulClaims")
    pinned_to_node: bool = msgspec.field(default=False, name="respread.dev/pinnedToNode")


def detach(spec: WirePodSpec, pod_name: str, *, of_daemon_set: bool) -> str:
    """Take out of a spec, in place, what differs between the pods of one template, and return the node's name.

    Left out are the node, volumes that decide nothing (the names of projected tokens are random), the pod's name in the
    claims of a StatefulSet's pod, and the node in the affinity of a DaemonSet's pod.
    """
    node_name = spec.node_name
    spec.node_name = ""
    if spec.volumes:
        _detach_volumes(spec, pod_name)
    if of_daemon_set and node_name and spec.affinity is not None and spec.affinity.node_affinity is not None:
        _detach_node(spec, spec.affinity.node_affinity, node_name)
    return node_name


def _detach_volumes(spec: WirePodSpec, pod_name: str) -> None:
    suffix = f"-{pod_name}"
    kept = []
    for volume in spec.volumes or ():
        claim = volume.persistent_volume_claim
        if claim is not None and claim.claim_name.endswith(suffix) and len(claim.claim_name) > len(suffix):
            spec.stateful_claims = [*(spec.stateful_claims or ()), claim.claim_name.removesuffix(suffix)]
            continue
        if volume.ephemeral is None:
            volume.name = ""
        if volume != _NO_VOLUME:
            kept.append(volume)
    spec.volumes = kept or None


def _detach_node(spec: WirePodSpec, affinity: _NodeAffinity, node_name: str) -> None:
    pin = NodeSelectorRequirement("metadata.name", "In", (node_name,))
    terms = () if affinity.required is None else affinity.required.node_selector_terms
    if not terms or not all(pin in term.match_fields for term in terms):
        return
    spec.pinned_to_node = True
    unpinned = tuple(
        NodeSelectorTerm(term.match_expressions, tuple(each for each in term.match_fields if each != pin))
        for term in terms
    )
    # A term without requirements matches no node, while one that had only the pin left the choice to it.
    without_rest = any(not term.match_expressions and not term.match_fields for term in unpinned)
    affinity.required = None if without_rest else NodeSelector(unpinned)


_NO_VOLUME = WireVolume()


def requests_of(spec: WirePodSpec) -> PodRequests:
    """Return what a spec requests.

    Raises:
        FieldError: a quantity is none.
    """
    return PodRequests(
        containers=tuple(_container_requests(spec.containers, "spec.containers")),
        init_containers=tuple(_container_requests(spec.init_containers or (), "spec.initContainers")),
        pod_level=requested(spec.resources, "spec.resources"),
        overhead=nano_amounts(spec.overhead, "spec.overhead"),
    )


def _container_requests(containers: Iterable[WireContainer], path: str) -> Iterator[ContainerRequests]:
    for position, container in enumerate(containers):
        yield ContainerRequests(
            container.name,
            requested(container.resources, f"{path}[{position}].resources"),
            container.restart_policy == "Always",
        )


def requested(resources: WireResources | None, path: str) -> dict[str, int]:
    """Return the requests among `resources`, in billionths of a unit.

    Raises:
        FieldError: a quantity is none.
    """
    return {} if resources is None else nano_amounts(resources.requests, f"{path}.requests")


def build_pod_spec(spec: WirePodSpec) -> PodSpec:
    """Return the spec in the product's own form.

    Raises:
        FieldError: a field holds what the API would not accept.
    """
    affinity = spec.affinity or WireAffinity()
    volumes = spec.volumes or []
    constraints = spec.topology_spread_constraints or ()
    for position, constraint in enumerate(constraints):
        checked_selector(constraint.label_selector, f"spec.topologySpreadConstraints[{position}].labelSelector")
    return PodSpec(
        requests=requests_of_spec(requests_of(spec)),
        host_ports=_host_ports(spec),
        node_selector=Map(spec.node_selector or {}),
        node_affinity=None if affinity.node_affinity is None else affinity.node_affinity.required,
        pod_affinity=_checked_terms(affinity.pod_affinity, "spec.affinity.podAffinity"),
        pod_anti_affinity=_checked_terms(affinity.pod_anti_affinity, "spec.affinity.podAntiAffinity"),
        tolerations=spec.tolerations or (),
        topology_spread_constraints=constraints,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority or 0,
        has_local_storage=any(
            each.host_path is not None or (each.empty_dir is not None and not each.empty_dir.medium) for each in volumes
        ),
        shared_claims=tuple(
            each.persistent_volume_claim.claim_name for each in volumes if each.persistent_volume_claim
        ),
        stateful_claims=tuple(spec.stateful_claims or ()),
        ephemeral_volumes=tuple(each.name for each in volumes if each.ephemeral is not None),
        disks=tuple(disk for each in volumes for disk in _disks(each)),
        migrated_volumes=tuple(volume for each in volumes if (volume := migrated(each)) is not None),
        pinned_to_node=spec.pinned_to_node,
        has_resource_claims=bool(spec.resource_claims),
        has_scheduling_gates=bool(spec.scheduling_gates),
    )


def _checked_terms(affinity: _PodAffinity | None, path: str) -> tuple[PodAffinityTerm, ...]:
    terms = () if affinity is None or affinity.required is None else affinity.required
    for position, term in enumerate(terms):
        at = f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{position}]"
        if not term.topology_key:
            raise FieldError(f"{at}.topologyKey", "it is empty")
        checked_selector(term.label_selector, f"{at}.labelSelector")
        checked_selector(term.namespace_selector, f"{at}.namespaceSelector")
    return terms


def _host_ports(spec: WirePodSpec) -> tuple[HostPort, ...]:
    """Return the ports of containers and sidecars, each once; an ordinary init container is gone when they matter."""
    sidecars = (each for each in spec.init_containers or () if each.restart_policy == "Always")
    ports = {
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or "0.0.0.0"): None  # noqa: S104 - the API's word
        for container in (*sidecars, *spec.containers)
        for port in container.ports or ()
        if port.host_port > 0
    }
    return tuple(ports)


def _disks(volume: WireVolume) -> Iterator[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield GCEPersistentDisk(gce.pd_name, bool(gce.read_only))
    if (aws := volume.aws_elastic_block_store) is not None:
        yield AWSElasticBlockStore(aws.volume_id, bool(aws.read_only))
    if (iscsi := volume.iscsi) is not None:
        yield ISCSIVolume(iscsi.iqn, bool(iscsi.read_only))
    if (rbd := volume.rbd) is not None:
        yield RBDVolume(rbd.monitors, rbd.pool, rbd.image, bool(rbd.read_only))
