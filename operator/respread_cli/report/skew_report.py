"""The result of `respread skew` as values. They are the JSON and YAML output, and the tables are made from them.

docs/cli.md describes every field.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.pod import WorkloadName
from respread.cluster.selectors import Selector
from respread.planning.audit.auditor import Findings, WorkloadFinding
from respread.planning.audit.finding import AuditRule, AuditState, PatchOperation, UnworkableState, When, state_of
from respread.scheduling.verdict import Plugin
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread
from respread_cli.report.scale_down_protection import ScaleDownReason

API_VERSION: Final = "cli.respread.dev/v1"
"""Of the JSON output. Within a version, a field is never removed or changed in meaning."""
MOST_EMPTY_DOMAINS: Final = 100
"""A group with more domains than this only lists those with pods."""

SHORT_KINDS: Final[Mapping[str, str]] = {
    "DaemonSet": "ds",
    "Deployment": "deploy",
    "Pod": "pod",
    "ReplicaSet": "rs",
    "ReplicationController": "rc",
    "StatefulSet": "sts",
}
"""kubectl's short names."""
_API_GROUPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"), "apps"),
    **dict.fromkeys(("CronJob", "Job"), "batch"),
}
_ORDER: Final[Mapping[AuditState, int]] = {
    "Unsatisfiable": 0,
    "BlockedViolation": 1,
    "RestorableViolation": 1,
    "Violation": 1,
    "Ineffective": 2,
    "Holds": 3,
}
_WILDCARDS: Final = frozenset("*?[")
_KIND_WORDS: Final[Mapping[str, str]] = {
    word: kind for kind, short in SHORT_KINDS.items() for word in (short, f"{short}s", kind.lower(), f"{kind.lower()}s")
} | {
    "deployments": "Deployment",
    "po": "Pod",
    "job": "Job",
    "jobs": "Job",
    "rollout": "Rollout",
    "rollouts": "Rollout",
    "clone": "CloneSet",
    "cloneset": "CloneSet",
    "clonesets": "CloneSet",
}


WORDS_OF_POLICIES: Final = frozenset(
    {
        "policy",
        "crbp",
        "rbp",
        "clusterrebalancepolicy",
        "clusterrebalancepolicies",
        "rebalancepolicy",
        "rebalancepolicies",
    }
)
KINDS_OF_TARGETS: Final = frozenset(_KIND_WORDS) | WORDS_OF_POLICIES
"""The words for kinds that may be before a name."""


class Origin(NamedTuple):
    """What a report was made from."""

    source: str
    """What was read."""
    time: datetime
    notes: tuple[str, ...] = ()
    """What the person should know besides, a sentence each."""


class WorkloadReference(msgspec.Struct, frozen=True):
    """A workload, in the namespace of its group."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Return the form that kubectl accepts: `deploy/web`."""
        return f"{SHORT_KINDS.get(self.kind, self.kind.lower())}/{self.name}"

    @property
    def full_name(self) -> str:
        """The form of kubectl's `-o name`: `deployment.apps/web`."""
        group = _API_GROUPS.get(self.kind)
        return f"{self.kind.lower()}{'' if group is None else f'.{group}'}/{self.name}"


class GroupReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One topology spread constraint with the pods that share it, and how they are spread."""

    namespace: str
    workloads: tuple[WorkloadReference, ...]
    """The workloads whose pods have it, sorted."""
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    max_skew: int
    min_domains: int
    selector: str
    violated: bool
    skew: int
    minimum: int
    """The global minimum, from which every domain's skew is counted."""
    excess: int
    """Pods above minimum + maxSkew, summed over the domains."""
    pods: int
    domains: int
    """How many eligible domains there are."""
    empty_domains: int
    counts: dict[str, int]
    """Pods per eligible domain, by name; without empty ones if there are more than `MOST_EMPTY_DOMAINS` domains."""
    state: AuditState
    """`Violation` where there is no plan, which would tell whether it can be restored."""
    findings: tuple[FindingReport, ...] = ()
    """Why it can't work; empty if it can."""


class ProtectionReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a workload is protected."""

    namespace: str
    workload: WorkloadReference
    protected: bool
    """Whether a scale-down follows Respread's pod deletion costs."""
    reason: ScaleDownReason
    message: str
    policy: str | None
    """The policy that decides."""


class RejectedNodesReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that reject a pod for the same reason."""

    plugin: Plugin
    topology_key: str | None
    """Of the constraint, if the plugin is PodTopologySpread."""
    nodes: int
    message: str


class PendingPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods of a workload that have no node for the same reason."""

    namespace: str
    workload: WorkloadReference
    pods: int
    pod: str
    """The name of one of them."""
    message: str
    """Why, in a sentence without a full stop."""
    rejections: tuple[RejectedNodesReport, ...]
    """Each reason; empty if none is known."""


class SkewReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All requested groups, worst first."""

    api_version: str = API_VERSION
    kind: Literal["SkewReport"] = "SkewReport"
    source: str
    time: datetime
    notes: tuple[str, ...] = ()
    violated: int
    """The number of violated groups."""
    worst_skew: int
    unsatisfiable: int = 0
    """The number of groups that keep pods Pending, now or at the next rollout or scale-up."""
    ineffective: int = 0
    """The number of groups that can't change where pods go."""
    groups: tuple[GroupReport, ...]
    protections: tuple[ProtectionReport, ...] | None = None
    """Of the groups' workloads; None if not requested, or if policies could not be read."""
    left_out: int = 0
    """How many more groups there are than `groups` lists, because of a limit. The numbers above count them too."""
    pending: tuple[PendingPods, ...] = ()
    """Pods that have the constraint of a requested group and no node."""

    def names(self) -> Iterator[str]:
        """Yield the workloads of the groups."""
        return (workload.full_name for group in self.groups for workload in group.workloads)


class GroupFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which groups are requested. An empty filter selects all."""

    namespace: str | None = None
    workloads: tuple[str, ...] = ()
    """Names, kinds and names such as `deploy/web`, or patterns such as `web-*`. One of a group's workloads must match
    one."""
    topology_keys: tuple[str, ...] = ()
    """Full keys, or the last part of them: `zone`."""
    when_unsatisfiable: WhenUnsatisfiable | None = None
    selector: Selector | None = None
    """Pods of the group, which have its constraint, must have such labels."""
    only_violated: bool = False
    """Whether those that hold are left out."""

    def selects(self, group: SpreadGroup) -> bool:
        """Whether a group is selected."""
        key = group.key
        return (
            (self.namespace is None or key.namespace == self.namespace)
            and (group.violated or not self.only_violated)
            and (self.when_unsatisfiable is None or key.when_unsatisfiable == self.when_unsatisfiable)
            and (
                not self.topology_keys
                or key.topology_key in self.topology_keys
                or short_topology_key(key.topology_key) in self.topology_keys
            )
            and (
                not self.workloads
                or any(workload_matches(pattern, each) for pattern in self.workloads for each in group.workloads)
            )
            and has_pods_with(group, self.selector)
        )


def joined_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return arguments with each kind joined to the name after it: `deployment web` is `deployment/web`, as in kubectl.

    A word that follows no kind, or is the last one, stays as it is, because a workload may be named like a kind.
    """
    joined: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if left and word.partition(".")[0].lower() in KINDS_OF_TARGETS and "/" not in left[0]:
            word = f"{word}/{left.pop(0)}"
        joined.append(word)
    return tuple(joined)


def unknown_workloads(spread: Spread, wanted: GroupFilter) -> list[str]:
    """Return the workloads that were named but that no group has, because a typo must not look balanced."""
    there = {
        workload
        for group in spread.groups.values()
        if wanted.namespace in (None, group.key.namespace)
        for workload in group.workloads
    }
    return [
        pattern
        for pattern in wanted.workloads
        if not _WILDCARDS.intersection(pattern) and not any(workload_matches(pattern, each) for each in there)
    ]


def workload_matches(pattern: str, workload: WorkloadName) -> bool:
    """Return whether an argument selects a workload: `web`, `deploy/web`, `deployments.apps/web`, `web-*`."""
    kind, slash, name = pattern.rpartition("/")
    word = kind.partition(".")[0].lower()
    if slash and _KIND_WORDS.get(word, word) not in {workload.kind, workload.kind.lower()}:
        return False
    return fnmatchcase(workload.name, name)


def has_pods_with(group: SpreadGroup, selector: Selector | None) -> bool:
    """Return whether a selector selects pods that have a group's constraint. None selects all pods."""
    return selector is None or any(selector.matches(template.labels) for template in group.carriers)


def short_topology_key(key: str) -> str:
    """Return the last part of a topology key: `zone`."""
    return key.rpartition("/")[2]


def skew_report(
    spread: Spread,
    wanted: GroupFilter,
    origin: Origin,
    protections: tuple[ProtectionReport, ...] | None = None,
    *,
    findings: Findings = Map(),
    pending: tuple[PendingPods, ...] = (),
    problems: bool = False,
    order: SortOrder = "severity",
    limit: int | None = None,
) -> SkewReport:
    """Return how the requested groups are spread.

    Args:
        spread: all groups.
        wanted: which are requested.
        origin: what they were read from.
        protections: of their workloads, if requested.
        findings: what the audit finds about them.
        pending: their pods without a node.
        problems: whether to leave out the groups that hold.
        order: by what they are sorted.
        limit: the most groups that are listed; None for all.
    """
    reports = (
        group_report(group, findings.get(key, ())) for key, group in spread.groups.items() if wanted.selects(group)
    )
    groups = sorted((each for each in reports if not problems or each.state != "Holds"), key=worst_first)
    if (place := _ORDERS[order]) is not None:
        groups.sort(key=place)
    shown = groups[:limit]
    return SkewReport(
        source=origin.source,
        time=origin.time,
        notes=origin.notes,
        violated=sum(group.violated for group in groups),
        worst_skew=max((group.skew for group in groups), default=0),
        unsatisfiable=sum(group.state == "Unsatisfiable" for group in groups),
        ineffective=sum(group.state == "Ineffective" for group in groups),
        groups=tuple(shown),
        protections=protections,
        left_out=len(groups) - len(shown),
        pending=pending,
    )


SortOrder = Literal["severity", "skew", "pods", "namespace", "workload", "key"]
_ORDERS: Final[Mapping[SortOrder, Callable[[GroupReport], tuple[object, ...]] | None]] = {
    "severity": None,
    "skew": lambda group: (-group.skew,),
    "pods": lambda group: (-group.pods,),
    "namespace": lambda group: (group.namespace, _first_workload(group)),
    "workload": lambda group: (_first_workload(group), group.namespace),
    "key": lambda group: (group.topology_key,),
}
"""What groups can be sorted by. Equal ones stay in order of severity."""
ORDERS: Final = tuple(_ORDERS)


def _first_workload(group: GroupReport) -> str:
    return group.workloads[0].name if group.workloads else ""


def group_report(
    group: SpreadGroup, findings: Sequence[WorkloadFinding] = (), *, blocked: bool | None = None
) -> GroupReport:
    """Return how a group is spread.

    Args:
        group: the group.
        findings: what the audit finds about it.
        blocked: whether a plan does not, or not fully, restore it; None if there is no plan.
    """
    key, domains = group.key, len(group.domains.nodes)
    counts = group.all_counts() if domains <= MOST_EMPTY_DOMAINS else dict(sorted(group.counts.items()))
    return GroupReport(
        namespace=key.namespace,
        workloads=tuple(WorkloadReference(each.kind, each.name) for each in group.workloads),
        topology_key=key.topology_key,
        when_unsatisfiable=key.when_unsatisfiable,
        max_skew=key.max_skew,
        min_domains=key.min_domains,
        selector=str(key.selector),
        violated=group.violated,
        skew=group.skew,
        minimum=group.minimum,
        excess=group.excess,
        pods=sum(group.counts.values()),
        domains=domains,
        empty_domains=domains - sum(count > 0 for count in group.counts.values()),
        counts=counts,
        state=state_of(violated=group.violated, blocked=blocked, findings=[each.finding for each in findings]),
        findings=finding_reports(key.namespace, findings),
    )


def worst_first(group: GroupReport) -> tuple[object, ...]:
    """Return the place of a group in the order of reports."""
    return (
        _ORDER[group.state],
        group.when_unsatisfiable != "DoNotSchedule",
        group.max_skew - group.skew,
        -group.excess,
        group.namespace,
        str(group.workloads[0]) if group.workloads else "",
        group.topology_key,
        group.selector,
    )


class FindingReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a constraint can't work, and what cures it."""

    rule: AuditRule
    state: UnworkableState
    when: When
    message: str
    cure: str
    docs: str
    """The page of the documentation of Kubernetes."""
    workloads: tuple[str, ...]
    """The workloads that have it: `deployment/web`."""
    patch: tuple[PatchOperation, ...]
    """A JSON patch for each of the workloads; empty if no change of a workload cures it."""
    command: str | None
    """The command that applies it to the first workload."""


def finding_reports(namespace: str, findings: Iterable[WorkloadFinding]) -> tuple[FindingReport, ...]:
    """Return the report of each finding about a constraint."""
    return tuple(_report(namespace, each) for each in findings)


def _report(namespace: str, found: WorkloadFinding) -> FindingReport:
    finding, first = found.finding, next(iter(found.workloads), None)
    patch = () if first is None else finding.patch_of(first.kind)
    return FindingReport(
        rule=finding.rule,
        state=finding.state,
        when=finding.when,
        message=finding.message,
        cure=finding.cure,
        docs=finding.rule.docs,
        workloads=tuple(f"{each.kind.lower()}/{each.name}" for each in found.workloads),
        patch=patch,
        command=None if first is None or not patch else _command(namespace, first, patch),
    )


def _command(namespace: str, workload: WorkloadName, patch: tuple[PatchOperation, ...]) -> str:
    encoded = shlex.quote(msgspec.json.encode(patch).decode())
    return f"kubectl -n {namespace} patch {workload.kind.lower()}/{workload.name} --type=json -p {encoded}"
