"""The part of a pod's spec that all pods of its template share, decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from immutables import Map

from respread.cluster.decode.csi_migration import migrated
from respread.cluster.decode.metadata import WireAmounts, checked_selector, nano_amounts
from respread.cluster.decode.pod_content import Present, WireEphemeralSpec, WireNodeAffinity, WireResources, WireVolume
from respread.cluster.objects import FieldError
from respread.cluster.pod import (
    AWSElasticBlockStore,
    Disk,
    GCEPersistentDisk,
    HostPort,
    ISCSIVolume,
    PodAffinityTerm,
    PodSpec,
    RBDVolume,
    Toleration,
    TopologySpreadConstraint,
)
from respread.cluster.quantity import (
    NANO_PER_UNIT,
    ContainerRequests,
    NanoAmounts,
    PodRequests,
    requests_of_spec,
    total_requests,
)

_COUNTED_BY_NAME: Final = ("cpu", "memory", "ephemeral-storage")
"""The resources whose requests ResourceQuotas count under the resource's own name too, and whose limits they count."""


class WirePort(msgspec.Struct, gc=False, rename="camel"):
    """A port of a container. A container port without a host port does not matter."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class WireRestartRule(msgspec.Struct, gc=False):
    """A rule of `restartPolicyRules` of a container."""

    action: str = ""


class WireContainer(msgspec.Struct, rename="camel"):
    """A container or init container."""

    name: str = ""
    resources: WireResources | None = None
    ports: list[WirePort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[WireRestartRule] | None = None


class WireWeightedTerm(msgspec.Struct, rename="camel"):
    """A preferred term of `affinity.podAffinity` or `affinity.podAntiAffinity`."""

    pod_affinity_term: PodAffinityTerm | None = None


class _WirePodAffinity(msgspec.Struct):
    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WireWeightedTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _WireAffinity(msgspec.Struct, rename="camel"):
    node_affinity: WireNodeAffinity | None = None
    pod_affinity: _WirePodAffinity | None = None
    pod_anti_affinity: _WirePodAffinity | None = None


class WirePodSpec(msgspec.Struct, rename="camel"):
    """`spec` of a pod, as `decode_pod_content` returns it, with the same fields."""

    containers: Sequence[WireContainer] = ()
    init_containers: Sequence[WireContainer] | None = None
    resources: WireResources | None = None
    overhead: WireAmounts | None = None
    volumes: Sequence[WireVolume] = ()
    node_selector: Map[str, str] | None = None
    affinity: _WireAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str | None = None
    active_deadline_seconds: int | None = None
    preemption_policy: str | None = None
    resource_claims: list[Present] | None = None
    scheduling_gates: list[Present] | None = None
    scheduling_group: Present | None = None
    workload_ref: Present | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    termination_grace_period_seconds: int | None = None
    stateful_claims: tuple[str, ...] = ()
    pinned_to_node: bool = False


def build_pod_spec(spec: WirePodSpec) -> PodSpec:
    """Return the spec in Respread's own form.

    Raises:
        FieldError: the API would reject the content of a field.
    """
    affinity = spec.affinity or _WireAffinity()
    claims = (each.persistent_volume_claim for each in spec.volumes)
    requests = requests_of(spec)
    return PodSpec(
        requests=requests_of_spec(requests),
        host_ports=_host_ports(spec),
        node_selector=spec.node_selector or Map(),
        node_affinity=None if affinity.node_affinity is None else affinity.node_affinity.required,
        pod_affinity=_checked_terms(affinity.pod_affinity, "spec.affinity.podAffinity"),
        pod_anti_affinity=_checked_terms(affinity.pod_anti_affinity, "spec.affinity.podAntiAffinity"),
        tolerations=spec.tolerations or (),
        topology_spread_constraints=_checked_constraints(spec.topology_spread_constraints or ()),
        scheduler_name=spec.scheduler_name,
        priority=spec.priority or 0,
        preempts=spec.preemption_policy != "Never",
        has_local_storage=any(each.is_local for each in spec.volumes),
        local_volumes=tuple(each.name for each in spec.volumes if each.is_local and each.name),
        shared_claims=tuple(claim.claim_name for claim in claims if claim is not None),
        stateful_claims=spec.stateful_claims,
        ephemeral_volumes=tuple(each.name for each in spec.volumes if each.ephemeral is not None),
        disks=tuple(disk for each in spec.volumes for disk in _disks(each)),
        migrated_volumes=tuple(volume for each in spec.volumes if (volume := migrated(each)) is not None),
        pinned_to_node=spec.pinned_to_node,
        has_resource_claims=bool(spec.resource_claims),
        has_scheduling_gates=bool(spec.scheduling_gates),
        is_in_scheduling_group=spec.scheduling_group is not None or spec.workload_ref is not None,
        needs_declared_features=_needs_declared_features(spec),
        stops_without_grace=spec.termination_grace_period_seconds == 0,
        priority_class_name=spec.priority_class_name or "",
        quota_scopes=tuple(_quota_scopes(spec)),
        quota_usage=Map(_quota_usage(spec, requests)),
    )


def requests_of(spec: WirePodSpec) -> PodRequests:
    """Return the requests of a spec.

    Raises:
        FieldError: a value is not a quantity.
    """
    return _amounts_of(spec, "requests", nano_amounts(spec.overhead, "spec.overhead"))


def limits_of(spec: WirePodSpec) -> NanoAmounts:
    """Return the sum of the limits of a spec, including overhead for limited resources (`PodLimits`).

    Raises:
        FieldError: a value is not a quantity.
    """
    overhead = nano_amounts(spec.overhead, "spec.overhead")
    found = total_requests(_amounts_of(spec, "limits", {}))
    return {name: amount + (overhead.get(name, 0) if amount else 0) for name, amount in found.items()}


_Which: TypeAlias = Literal["requests", "limits"]


def _amounts_of(spec: WirePodSpec, which: _Which, overhead: NanoAmounts) -> PodRequests:
    return PodRequests(
        containers=tuple(_container_amounts(spec.containers, which, "spec.containers")),
        init_containers=tuple(_container_amounts(spec.init_containers or (), which, "spec.initContainers")),
        pod_level=amounts_of(spec.resources, which, "spec.resources"),
        overhead=overhead,
    )


def _container_amounts(containers: Sequence[WireContainer], which: _Which, path: str) -> Iterator[ContainerRequests]:
    for position, container in enumerate(containers):
        amounts = amounts_of(container.resources, which, f"{path}[{position}].resources")
        yield ContainerRequests(container.name, amounts, container.restart_policy == "Always")


def amounts_of(resources: WireResources | None, which: _Which, path: str) -> dict[str, int]:
    """Return the requests or limits of `resources` in billionths of a unit.

    Raises:
        FieldError: a value is not a quantity.
    """
    return {} if resources is None else nano_amounts(getattr(resources, which), f"{path}.{which}")


def _quota_usage(spec: WirePodSpec, requests: PodRequests) -> Mapping[str, int]:
    """Return what a pod uses of quotas (`PodUsageFunc`).

    The claims of its ephemeral volumes count too: the old pod's still exist when the new ones are created.
    """
    used = Counter({"pods": NANO_PER_UNIT, "count/pods": NANO_PER_UNIT})
    for name, amount in total_requests(requests).items():
        if name in _COUNTED_BY_NAME or name.startswith("hugepages-"):
            used[name] = amount
        used[f"requests.{name}"] = amount
    used |= {f"limits.{name}": amount for name, amount in limits_of(spec).items() if name in _COUNTED_BY_NAME}
    for claim in claims_of(spec).values():
        of_class = (f"{claim.storage_class_name}.storageclass.storage.k8s.io/",) if claim.storage_class_name else ()
        for prefix in ("", *of_class):
            used[f"{prefix}persistentvolumeclaims"] += NANO_PER_UNIT
            used[f"{prefix}requests.storage"] += claimed(claim).get("storage", 0)
        used["count/persistentvolumeclaims"] += NANO_PER_UNIT
    return used


def claims_of(spec: WirePodSpec) -> dict[str, WireEphemeralSpec]:
    """Return the claims of a pod's ephemeral volumes, by the volumes' names."""
    templates = {each.name: each.ephemeral.volume_claim_template for each in spec.volumes if each.ephemeral is not None}
    return {name: WireEphemeralSpec() if template is None else template.spec for name, template in templates.items()}


def claimed(claim: WireEphemeralSpec) -> dict[str, int]:
    """Return what a claim requests, in billionths of a unit.

    Raises:
        FieldError: a value is not a quantity.
    """
    return amounts_of(claim.resources, "requests", "spec.volumes")


def _quota_scopes(spec: WirePodSpec) -> Iterator[str]:
    """Yield the scopes that a pod is in (`podMatchesScopeFunc`)."""
    yield "NotTerminating" if spec.active_deadline_seconds is None else "Terminating"
    yield "BestEffort" if _is_best_effort(spec) else "NotBestEffort"
    affinity = spec.affinity or _WireAffinity()
    given = [each for each in (affinity.pod_affinity, affinity.pod_anti_affinity) if each is not None]
    terms = [*(term for each in given for term in each.required or ())]
    terms += (term.pod_affinity_term or PodAffinityTerm("") for each in given for term in each.preferred or ())
    if any(term.namespaces or term.namespace_selector is not None for term in terms):
        yield "CrossNamespacePodAffinity"


def _is_best_effort(spec: WirePodSpec) -> bool:
    """Return whether a pod requests neither cpu nor memory (`ComputePodQOS`)."""
    whole = spec.resources
    if whole is not None and (whole.requests or whole.limits):
        asking = [whole]
    else:
        asking = [each.resources for each in (*spec.containers, *(spec.init_containers or ())) if each.resources]
    return not any(
        amounts.get("cpu") or amounts.get("memory")
        for each in asking
        for amounts in (amounts_of(each, "requests", "spec"), amounts_of(each, "limits", "spec"))
    )


def _checked_constraints(constraints: tuple[TopologySpreadConstraint, ...]) -> tuple[TopologySpreadConstraint, ...]:
    for position, constraint in enumerate(constraints):
        path = f"spec.topologySpreadConstraints[{position}]"
        if constraint.max_skew < 1:
            raise FieldError(f"{path}.maxSkew", f"it is {constraint.max_skew}, and has to be greater than zero")
        if constraint.min_domains is not None and constraint.min_domains < 1:
            raise FieldError(f"{path}.minDomains", f"it is {constraint.min_domains}, and has to be greater than zero")
        if not constraint.topology_key:
            raise FieldError(f"{path}.topologyKey", "it is empty")
        checked_selector(constraint.label_selector, f"{path}.labelSelector")
    return constraints


def _checked_terms(affinity: _WirePodAffinity | None, path: str) -> tuple[PodAffinityTerm, ...]:
    terms = () if affinity is None or affinity.required is None else affinity.required
    for position, term in enumerate(terms):
        at = f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{position}]"
        if not term.topology_key:
            raise FieldError(f"{at}.topologyKey", "it is empty")
        checked_selector(term.label_selector, f"{at}.labelSelector")
        checked_selector(term.namespace_selector, f"{at}.namespaceSelector")
    return terms


def _host_ports(spec: WirePodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of containers and sidecars, each once.

    Ordinary init containers have ended when ports matter.
    """
    sidecars = (each for each in spec.init_containers or () if each.restart_policy == "Always")
    ports = {
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or "0.0.0.0"): None  # noqa: S104 - the API's word
        for container in (*sidecars, *spec.containers)
        for port in container.ports or ()
        if port.host_port > 0
    }
    return tuple(ports)


def _needs_declared_features(spec: WirePodSpec) -> bool:
    """Mirrors `InferForScheduling` of k8s.io/component-helpers/nodedeclaredfeatures/features in 1.36."""
    if spec.host_network and spec.host_users is False:
        return True
    containers = (*spec.containers, *(spec.init_containers or ()))
    return any(rule.action == "RestartAllContainers" for each in containers for rule in each.restart_policy_rules or ())


def _disks(volume: WireVolume) -> Iterator[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield GCEPersistentDisk(gce.pd_name, bool(gce.read_only))
    if (aws := volume.aws_elastic_block_store) is not None:
        yield AWSElasticBlockStore(aws.volume_id, bool(aws.read_only))
    if (iscsi := volume.iscsi) is not None:
        yield ISCSIVolume(iscsi.iqn, bool(iscsi.read_only))
    if (rbd := volume.rbd) is not None:
        yield RBDVolume(rbd.monitors, rbd.pool, rbd.image, bool(rbd.read_only))
