"""What the rules of the audit answer: findings, and the patches that cure them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from respread.cluster.meta import Labels
from respread.planning.audit.finding import AuditRule, Finding, PatchOperation, When
from respread.planning.audit.subject import Subject

PER_POD_LABELS: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels that differ between the pods of a workload."""
_PASSING_LABELS: Final = PER_POD_LABELS | {
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
    return {key: value for key, value in sorted(labels.items()) if key not in _PASSING_LABELS}
