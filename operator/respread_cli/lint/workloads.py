"""The pod templates of manifests, decoded as the operator decodes pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from respread.cluster.decode.decoder import Decoder
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import DecodeError
from respread.cluster.pod import Pod
from respread_cli.lint.manifests import Manifest
from respread_cli.lint.rules import LintFinding, parse_path
from respread_cli.read.yaml_documents import FieldPath

CONSTRAINTS: Final = "topologySpreadConstraints"
_TEMPLATE: Final[FieldPath] = ("spec", "template")
_REPLICAS: Final[FieldPath] = ("spec", "replicas")
_PARALLELISM: Final[FieldPath] = ("spec", "parallelism")


class _Kind(NamedTuple):
    """Where a kind keeps a pod template."""

    template: FieldPath = _TEMPLATE
    replicas: FieldPath | None = _REPLICAS
    """None if the number of pods is not in the manifest."""
    revision_label: str | None = None
    """The label that tells old from new pods, if a rollout has both at once."""
    serves: bool = True
    """Whether its pods run until they are deleted, so that a PodDisruptionBudget makes sense."""
    labels: tuple[str, ...] = ()
    """The labels that its controller adds to the pods, which selectors and matchLabelKeys may name."""


_OF_JOBS: Final = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
)
_KINDS: Final[Mapping[tuple[str, str], tuple[_Kind, ...]]] = {
    ("", "Pod"): (_Kind((), None, serves=False),),
    ("", "ReplicationController"): (_Kind(),),
    ("apps", "DaemonSet"): (_Kind(replicas=None, serves=False, labels=("controller-revision-hash",)),),
    ("apps", "Deployment"): (_Kind(revision_label="pod-template-hash"),),
    ("apps", "ReplicaSet"): (_Kind(),),
    ("apps", "StatefulSet"): (
        _Kind(
            labels=("apps.kubernetes.io/pod-index", "controller-revision-hash", "statefulset.kubernetes.io/pod-name")
        ),
    ),
    ("apps.kruise.io", "CloneSet"): (_Kind(),),
    ("apps.kruise.io", "DaemonSet"): (_Kind(replicas=None, serves=False),),
    ("apps.kruise.io", "StatefulSet"): (_Kind(),),
    ("argoproj.io", "Rollout"): (_Kind(revision_label="rollouts-pod-template-hash"),),
    ("batch", "CronJob"): (
        _Kind(
            ("spec", "jobTemplate", "spec", "template"),
            ("spec", "jobTemplate", "spec", "parallelism"),
            serves=False,
            labels=_OF_JOBS,
        ),
    ),
    ("batch", "Job"): (_Kind(replicas=_PARALLELISM, serves=False, labels=_OF_JOBS),),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        _Kind(("spec", "leaderWorkerTemplate", "leaderTemplate")),
        _Kind(("spec", "leaderWorkerTemplate", "workerTemplate"), None),
    ),
}
_AUTOSCALERS: Final = {
    ("autoscaling", "HorizontalPodAutoscaler"): "maxReplicas",
    ("keda.sh", "ScaledObject"): "maxReplicaCount",
}
"""Where they have the most replicas of `scaleTargetRef`."""
_MOST_OF_KEDA: Final = 100
"""If a ScaledObject does not say."""


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod template of a manifest."""

    manifest: Manifest
    path: FieldPath
    """Of the template in the manifest; empty for a Pod."""
    pod: Pod
    """A pod as the template makes it, without a node."""
    pods: int | None
    """How many there are at most; None if that is not known."""
    revision_label: str | None
    serves: bool

    @property
    def spec_path(self) -> FieldPath:
        """The pod spec in the manifest."""
        return (*self.path, "spec")

    @property
    def identity(self) -> tuple[str, str, str, FieldPath]:
        """What is the same in all files that contain the workload, such as those of several environments."""
        return self.manifest.kind, self.manifest.namespace, self.manifest.name, self.path

    def constraint_path(self, position: int) -> FieldPath:
        """Return the path of a topology spread constraint."""
        return (*self.spec_path, CONSTRAINTS, position)


Scaling: TypeAlias = Mapping[tuple[str, str, str], int]
"""How many replicas autoscalers allow, by the kind, namespace and name of their targets."""


def scaling_of(manifests: list[Manifest]) -> Scaling:
    """Return what the HorizontalPodAutoscalers, and the ScaledObjects of KEDA, among manifests allow."""
    most: dict[tuple[str, str, str], int] = {}
    for each in manifests:
        if (field := _AUTOSCALERS.get((each.group, each.kind))) is not None:
            target, replicas = each.at(("spec", "scaleTargetRef")), each.at(("spec", field))
            if replicas is None and each.kind == "ScaledObject":
                replicas = _MOST_OF_KEDA
            if isinstance(target, Mapping) and isinstance(replicas, int):
                most[str(target.get("kind", "Deployment")), each.namespace, str(target.get("name"))] = replicas
    return most


def templates_of(manifest: Manifest, scaling: Scaling, decoder: Decoder) -> Iterator[PodTemplate | LintFinding]:
    """Yield the pod templates of a manifest, and what the API server would reject in them.

    A kind that is not known has a template if `spec.template.spec` has containers.
    """
    known = _KINDS.get((manifest.group, manifest.kind))
    if known is None:
        found = manifest.at((*_TEMPLATE, "spec", "containers"))
        known = (_Kind(),) if isinstance(found, list) else ()
    for kind in known:
        if manifest.at((*kind.template, "spec")) is not None:
            yield _template(manifest, kind, scaling, decoder)


def decoded_by(decoder: Decoder, resource: str, wire: dict[str, Any], at: FieldPath) -> object:
    """Return an object as the operator decodes it, or a finding: what the API server would reject in it.

    `at` is where it is in its manifest.
    """
    try:
        return decoder.decode_object(resource, msgspec.json.encode(wire))
    except DecodeError as error:
        path = parse_path(error.path)
        rule = "RejectedConstraint" if CONSTRAINTS in path else "Unreadable"
        return LintFinding(rule=rule, field=(*at, *path), message=f"The API server rejects it: {error.message}.")
    except (TypeError, ValueError) as error:
        return LintFinding(rule="Unreadable", field=at, message=f"It can't be sent to the API server: {error}.")


def _template(manifest: Manifest, kind: _Kind, scaling: Scaling, decoder: Decoder) -> PodTemplate | LintFinding:
    metadata = manifest.at((*kind.template, "metadata"))
    metadata = metadata if isinstance(metadata, Mapping) else {}
    shared = {each: metadata[each] for each in ("labels", "annotations") if metadata.get(each) is not None}
    added = (*kind.labels, *filter(None, [kind.revision_label]))
    if added and isinstance(labels := shared.get("labels", {}), Mapping):
        shared["labels"] = {**dict.fromkeys(added, manifest.name), **labels}
    wire = {
        "metadata": {"name": manifest.name or "pod", "namespace": manifest.namespace, **shared},
        "spec": manifest.at((*kind.template, "spec")),
    }
    pod = decoded_by(decoder, "pods", wire, kind.template)
    if isinstance(pod, LintFinding):
        return pod
    assert isinstance(pod, Pod)  # noqa: S101 - the decoder of pods
    if kind.template:
        owner = OwnerReference(manifest.api_version, manifest.kind, manifest.name, "")
        pod = msgspec.structs.replace(pod, controller=owner)
    return PodTemplate(
        manifest=manifest,
        path=kind.template,
        pod=pod,
        pods=_pods(manifest, kind, scaling),
        revision_label=None if manifest.at(("spec", "strategy", "type")) == "Recreate" else kind.revision_label,
        serves=kind.serves,
    )


def _pods(manifest: Manifest, kind: _Kind, scaling: Scaling) -> int | None:
    """Return the most pods of a template. A number that is missing is often left to an autoscaler."""
    most = scaling.get((manifest.kind, manifest.namespace, manifest.name))
    if most is not None and kind.replicas == _REPLICAS:
        return most
    replicas = None if kind.replicas is None else manifest.at(kind.replicas)
    return replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else None
