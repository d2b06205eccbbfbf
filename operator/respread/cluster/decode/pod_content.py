"""The part of a pod's spec that all pods of its template share, as bytes. Equal parts have equal bytes.

This runs for every pod, so most of the spec stays undecoded. `decode_pod_specs` decodes it once per template.
"""

from __future__ import annotations

from typing import Final

import msgspec

from respread.api.json_documents import decode_map, encode_map
from respread.cluster.decode.csi_migration import InTreeSources
from respread.cluster.decode.metadata import WireAmounts
from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

ABSENT: Final = msgspec.Raw()
"""An undecoded field that was not sent."""


class RawContainer(msgspec.Struct, rename="camel", omit_defaults=True):
    """A container or init container."""

    name: str = ""
    resources: msgspec.Raw = ABSENT
    ports: msgspec.Raw = ABSENT
    restart_policy: str | None = None
    restart_policy_rules: msgspec.Raw = ABSENT


class _WireClaimSource(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    claim_name: str = ""


class _WireEmptyDir(msgspec.Struct, gc=False, omit_defaults=True):
    medium: str = ""


class Present(msgspec.Struct, gc=False):
    """An object that only matters by its presence."""


class WireResources(msgspec.Struct, omit_defaults=True):
    """`resources` of a container, pod or claim."""

    requests: WireAmounts | None = None
    limits: WireAmounts | None = None


class WireEphemeralSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    """`spec` of the claim of an ephemeral volume."""

    storage_class_name: str | None = None
    resources: WireResources | None = None


class _WireClaimTemplate(msgspec.Struct, omit_defaults=True):
    spec: WireEphemeralSpec = msgspec.field(default_factory=WireEphemeralSpec)


class _WireEphemeral(msgspec.Struct, rename="camel", omit_defaults=True):
    volume_claim_template: _WireClaimTemplate | None = None


class _WireISCSI(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    iqn: str = ""
    read_only: bool | None = False


class _WireRBD(msgspec.Struct, rename="camel", omit_defaults=True):
    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool | None = False


class WireVolume(InTreeSources, rename="camel", omit_defaults=True):
    """A volume with the sources that matter. For any other source it has only a name."""

    name: str = ""
    persistent_volume_claim: _WireClaimSource | None = None
    ephemeral: _WireEphemeral | None = None
    host_path: Present | None = None
    empty_dir: _WireEmptyDir | None = None
    iscsi: _WireISCSI | None = None
    rbd: _WireRBD | None = None

    @property
    def is_local(self) -> bool:
        """Whether its content is stored on the node itself."""
        return self.host_path is not None or (self.empty_dir is not None and not self.empty_dir.medium)


class WireNodeAffinity(msgspec.Struct, omit_defaults=True):
    """`affinity.nodeAffinity`, with only the required part."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class RawAffinity(msgspec.Struct, rename="camel", omit_defaults=True):
    """`affinity`, where only the node affinity is decoded."""

    node_affinity: WireNodeAffinity | None = None
    pod_affinity: msgspec.Raw = ABSENT
    pod_anti_affinity: msgspec.Raw = ABSENT


class RawPodSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    """`spec` of a pod, without fields that Respread does not use."""

    node_name: str = ""
    containers: list[RawContainer] = []
    init_containers: list[RawContainer] | None = None
    resources: msgspec.Raw = ABSENT
    overhead: msgspec.Raw = ABSENT
    volumes: list[WireVolume] | None = None
    node_selector: msgspec.Raw = ABSENT
    affinity: msgspec.Raw = ABSENT
    tolerations: msgspec.Raw = ABSENT
    topology_spread_constraints: msgspec.Raw = ABSENT
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str | None = None
    active_deadline_seconds: int | None = None
    preemption_policy: str | None = None
    resource_claims: msgspec.Raw = ABSENT
    scheduling_gates: msgspec.Raw = ABSENT
    scheduling_group: msgspec.Raw = ABSENT
    workload_ref: msgspec.Raw = ABSENT
    host_network: bool | None = None
    host_users: bool | None = None
    termination_grace_period_seconds: int | None = None
    # Not a field of the API: what `detach` removes from the fields above.
    stateful_claims: list[str] | None = None
    pinned_to_node: bool = False


class PodContents:
    """Determines which parts of their specs pods share."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder(enc_hook=encode_map).encode
        self._decode_affinity = msgspec.json.Decoder(RawAffinity | None, dec_hook=decode_map).decode

    def detach(
        self, spec: RawPodSpec, pod_name: str, *, of_daemon_set: bool, names_local_volumes: bool = False
    ) -> tuple[str, bytes]:
        """Return the name of the pod's node, and the rest of the spec as JSON. The spec is changed meanwhile.

        The JSON omits what differs between pods of one template: the node, volumes that don't matter (the names of
        projected tokens are random), the pod's name in the claims of a StatefulSet's pod, and the node in the affinity
        of a DaemonSet's pod. Names of local volumes stay only if an annotation of the pod names those that may be lost.

        Raises:
            msgspec.ValidationError: the affinity of a DaemonSet's pod has an unexpected form.
        """
        node_name = spec.node_name
        spec.node_name = ""
        if spec.volumes:
            _detach_volumes(spec, pod_name, names_local=names_local_volumes)
        if of_daemon_set and node_name and spec.affinity is not ABSENT:
            self._detach_node(spec, spec.affinity, node_name)
        return node_name, self._encode(spec)

    def _detach_node(self, spec: RawPodSpec, raw_affinity: msgspec.Raw, node_name: str) -> None:
        affinity = self._decode_affinity(raw_affinity)
        if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
            return
        terms = affinity.node_affinity.required.node_selector_terms
        pin = NodeSelectorRequirement("metadata.name", "In", (node_name,))
        if not terms or not all(pin in term.match_fields for term in terms):
            return
        spec.pinned_to_node = True
        unpinned = tuple(
            NodeSelectorTerm(term.match_expressions, tuple(each for each in term.match_fields if each != pin))
            for term in terms
        )
        # A term without requirements matches no node, but a term that contained only the pinned node left everything
        # else open.
        leaves_all_open = any(not term.match_expressions and not term.match_fields for term in unpinned)
        affinity.node_affinity.required = None if leaves_all_open else NodeSelector(unpinned)
        spec.affinity = msgspec.Raw(self._encode(affinity))


def _detach_volumes(spec: RawPodSpec, pod_name: str, *, names_local: bool) -> None:
    suffix = f"-{pod_name}"
    kept = []
    for volume in spec.volumes or ():
        claim = volume.persistent_volume_claim
        if claim is not None and claim.claim_name.endswith(suffix):
            spec.stateful_claims = [*(spec.stateful_claims or ()), claim.claim_name.removesuffix(suffix)]
            continue
        if volume.ephemeral is None and not (names_local and volume.is_local):
            volume.name = ""
        if volume != _NO_VOLUME:
            kept.append(volume)
    spec.volumes = kept or None


_NO_VOLUME = WireVolume()
