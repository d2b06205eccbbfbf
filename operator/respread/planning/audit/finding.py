"""What the audit finds about a topology spread constraint: the rule, the cause, and the patch that cures it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

import msgspec

from respread.cluster.meta import Labels
from respread.planning.audit.subject import Subject

_DOCS: Final = "https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/#"
_POD_SPECS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("CloneSet", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "Rollout", "StatefulSet"),
        "/spec/template/spec",
    ),
    "CronJob": "/spec/jobTemplate/spec/template/spec",
}
"""Where workloads have the spec of their pods, by kind. Those of Jobs and pods can't be changed."""

AuditState: TypeAlias = Literal[
    "Unsatisfiable", "Ineffective", "BlockedViolation", "RestorableViolation", "Violation", "Holds"
]
"""`Violation` where it is not known whether it can be restored, because there is no plan."""
UnworkableState: TypeAlias = Literal["Unsatisfiable", "Ineffective"]
When: TypeAlias = Literal["Now", "NextRollout", "NextScaleUp"]


class AuditRule(StrEnum):
    """Why a constraint can't work. People, dashboards and annotations see the value."""

    CONTRADICTION = "Contradiction"
    DUPLICATE = "Duplicate"
    FULL_DOMAINS = "FullDomains"
    KEY_PER_POD = "KeyPerPod"
    MIN_DOMAINS_IGNORED = "MinDomainsIgnored"
    NO_ELIGIBLE_NODE = "NoEligibleNode"
    ONE_DOMAIN = "OneDomain"
    SELECTOR_MATCHES_NOTHING = "SelectorMatchesNothing"
    SELECTOR_MISSES_OWN_PODS = "SelectorMissesOwnPods"
    SKEW_UNREACHABLE = "SkewUnreachable"
    TOO_FEW_DOMAINS = "TooFewDomains"
    UNAVAILABLE_DOMAINS = "UnavailableDomains"
    UNKNOWN_TOPOLOGY_KEY = "UnknownTopologyKey"

    @property
    def docs(self) -> str:
        """The section of the documentation of Kubernetes that explains it."""
        return _DOCS + _SECTIONS[self]


_SECTIONS: Final[Mapping[AuditRule, str]] = {
    AuditRule.CONTRADICTION: "example-conflicting-topologyspreadconstraints",
    AuditRule.DUPLICATE: "example-multiple-topologyspreadconstraints",
    AuditRule.FULL_DOMAINS: "spread-constraint-definition",
    AuditRule.KEY_PER_POD: "spread-constraint-definition",
    AuditRule.MIN_DOMAINS_IGNORED: "spread-constraint-definition",
    AuditRule.NO_ELIGIBLE_NODE: "implicit-conventions",
    AuditRule.ONE_DOMAIN: "interaction-with-node-affinity-and-node-selectors",
    AuditRule.SELECTOR_MATCHES_NOTHING: "implicit-conventions",
    AuditRule.SELECTOR_MISSES_OWN_PODS: "implicit-conventions",
    AuditRule.SKEW_UNREACHABLE: "spread-constraint-definition",
    AuditRule.TOO_FEW_DOMAINS: "spread-constraint-definition",
    AuditRule.UNAVAILABLE_DOMAINS: "known-limitations",
    AuditRule.UNKNOWN_TOPOLOGY_KEY: "node-labels",
}


class PatchOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operation of a JSON patch (RFC 6902)."""

    op: Literal["add", "remove", "replace", "test"]
    path: str
    """In a finding, it starts at the spec of the pod."""
    value: Any = msgspec.UNSET


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Why a constraint can't work."""

    rule: AuditRule
    state: UnworkableState
    """Unsatisfiable: it keeps pods Pending. Ineffective: where the pods that have it are makes no difference to it."""
    when: When
    """For an unsatisfiable one, when it keeps a pod Pending; `Now` for an ineffective one."""
    message: str
    """The cause, as a sentence without a full stop."""
    cure: str
    """What to do, as an imperative without a full stop."""
    patch: tuple[PatchOperation, ...] = ()
    """The smallest change of the pod's spec that cures it; empty if only nodes or other objects can be changed."""

    def patch_of(self, kind: str) -> tuple[PatchOperation, ...]:
        """Return the patch for a workload of a kind; empty if it has none, or its pods' spec can't be changed."""
        prefix = _POD_SPECS.get(kind)
        if prefix is None:
            return ()
        return tuple(msgspec.structs.replace(each, path=prefix + each.path) for each in self.patch)


def state_of(*, violated: bool, blocked: bool | None, findings: Iterable[Finding]) -> AuditState:
    """Return the state of a constraint.

    It is `blocked` if a plan does not, or not fully, restore it; None if there is no plan.
    """
    found = {(each.state, each.when) for each in findings}
    if ("Unsatisfiable", "Now") in found:
        return "Unsatisfiable"
    if ("Ineffective", "Now") in found:
        return "Ineffective"
    if violated:
        if blocked is None:
            return "Violation"
        return "BlockedViolation" if blocked else "RestorableViolation"
    return "Unsatisfiable" if found else "Holds"


PER_POD_LABELS: Final = frozenset(
    {"apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index", "statefulset.kubernetes.io/pod-name"}
)
"""Labels that differ between the pods of a workload."""
PASSING_LABELS: Final = PER_POD_LABELS | {
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "batch.kubernetes.io/controller-uid",
    "controller-revision-hash",
    "controller-uid",
    "batch.kubernetes.io/job-name",
    "helm.sh/chart",
    "job-name",
    "pod-template-generation",
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "version",
}
"""Labels that differ between a workload's revisions or pods, and so are no part of a selector."""
_IDENTITIES: Final[Sequence[tuple[str, ...]]] = (
    ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"),
    ("app.kubernetes.io/name", "app.kubernetes.io/instance"),
    ("app",),
    ("k8s-app",),
)
"""Labels that identify a workload by convention."""


def ineffective(rule: AuditRule, message: str, cure: str, patch: tuple[PatchOperation, ...] = ()) -> Finding:
    """Return a finding about a constraint that is ineffective."""
    return Finding(rule=rule, state="Ineffective", when="Now", message=message, cure=cure, patch=patch)


def unsatisfiable(
    rule: AuditRule,
    subject: Subject,
    message: str,
    cure: str,
    patch: tuple[PatchOperation, ...],
    when: When | None = None,
) -> Finding:
    """Return a finding about a constraint that keeps pods Pending; now if some wait, unless `when` says otherwise."""
    if subject.position is None:
        cure, patch = f"{cure}. It is a default constraint: give the workload constraints of its own, or change it", ()
    at: When = when or ("Now" if subject.waiting else "NextRollout")
    return Finding(rule=rule, state="Unsatisfiable", when=at, message=message, cure=cure, patch=patch)


def set_field(subject: Subject, field: str, value: Any, *, guarded: bool = True) -> tuple[PatchOperation, ...]:
    """Return the patch that sets a field, guarded by a test that the constraint is still the one that was found."""
    where = f"/topologySpreadConstraints/{subject.position}"
    test = (PatchOperation("test", f"{where}/topologyKey", subject.key.topology_key),) if guarded else ()
    return (*test, PatchOperation("add", f"{where}/{field}", value))


def remove(subject: Subject, field: str = "") -> tuple[PatchOperation, ...]:
    """Return the patch that removes a field of the constraint, or the constraint, with the same guard."""
    where = f"/topologySpreadConstraints/{subject.position}"
    test = PatchOperation("test", f"{where}/topologyKey", subject.key.topology_key)
    return (test, PatchOperation("remove", f"{where}/{field}" if field else where))


def soften(subject: Subject) -> tuple[PatchOperation, ...]:
    """Return the patch that makes a DoNotSchedule constraint ScheduleAnyway; that removes it if there is one already.

    The API server refuses two constraints with the same topologyKey and whenUnsatisfiable, and ScheduleAnyway with
    minDomains.
    """
    key = subject.key
    if any(each.topology_key == key.topology_key and each != key for each in subject.keys):
        return remove(subject)
    without = remove(subject, "minDomains")[1:] if key.min_domains > 1 else ()
    return (*set_field(subject, "whenUnsatisfiable", "ScheduleAnyway"), *without)


def identity_of(labels: Labels) -> dict[str, str]:
    """Return labels that select the pods of a workload in all its revisions; none if there are none."""
    for keys in _IDENTITIES:
        if all(key in labels for key in keys):
            return {key: labels[key] for key in keys}
    return {key: value for key, value in sorted(labels.items()) if key not in PASSING_LABELS}
