"""The result of `respread skew` as values. They are the JSON and YAML output, and the tables are made from them.

docs/cli.md describes every field.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec
from immutables import Map

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.planning.audit.auditor import Findings, WorkloadFinding
from respread.planning.audit.finding import AuditRule, AuditState, PatchOperation, UnworkableState, When, state_of
from respread.planning.audit.limit_rules import WhyPending, why_pending
from respread.scheduling.predictor import Predictor
from respread.scheduling.verdict import Plugin, Unknown
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.scale_downs import ProtectionReport
from respread_cli.report.target import WorkloadReference, is_pattern, workload_matches

API_VERSION: Final = "cli.respread.dev/v1"
"""Of the JSON output. Within a version, a field is never removed or changed in meaning."""
MOST_EMPTY_DOMAINS: Final = 100
"""A group with more domains than this only lists those with pods."""

_ORDER: Final[Mapping[AuditState, int]] = {
    "Unsatisfiable": 0,
    "BlockedViolation": 1,
    "RestorableViolation": 1,
    "Violation": 1,
    "Ineffective": 2,
    "Holds": 3,
}


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


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What every result about a cluster begins with."""

    api_version: str = API_VERSION
    kind: str
    source: str
    """What was read."""
    time: datetime
    notes: tuple[str, ...] = ()
    """What the person should know besides, a sentence each."""


class SkewReport(ClusterReport, frozen=True, kw_only=True, rename="camel"):
    """All requested groups, worst first."""

    kind: Literal["SkewReport"] = "SkewReport"
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
        if not is_pattern(pattern) and not any(workload_matches(pattern, each) for each in there)
    ]


def has_pods_with(group: SpreadGroup, selector: Selector | None) -> bool:
    """Return whether a selector selects pods that have a group's constraint. None selects all pods."""
    return selector is None or any(selector.matches(template.labels) for template in group.carriers)


def short_topology_key(key: str) -> str:
    """Return the last part of a topology key: `zone`."""
    return key.rpartition("/")[2]


def skew_report(
    view: ReadCluster,
    spread: Spread,
    wanted: GroupFilter,
    *,
    protections: tuple[ProtectionReport, ...] | None = None,
    findings: Findings = Map(),
    pending: tuple[PendingPods, ...] = (),
    problems: bool = False,
    order: SortOrder = "severity",
    limit: int | None = None,
) -> SkewReport:
    """Return how the requested groups are spread.

    `problems` leaves out the groups that hold. At most `limit` groups are listed; None is all.
    """
    reports = (
        group_report(group, findings.get(key, ())) for key, group in spread.groups.items() if wanted.selects(group)
    )
    groups = sorted((each for each in reports if not problems or each.state != "Holds"), key=worst_first)
    if (place := _ORDERS[order]) is not None:
        groups.sort(key=place)
    shown = groups[:limit]
    return SkewReport(
        source=view.source,
        time=view.time,
        notes=view.notes,
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

    It is `blocked` if a plan does not, or not fully, restore it; None if there is no plan.
    """
    key, domains = group.key, len(group.domains.nodes)
    counts = group.all_counts() if domains <= MOST_EMPTY_DOMAINS else dict(sorted(group.counts.items()))
    return GroupReport(
        namespace=key.namespace,
        workloads=tuple(map(WorkloadReference.of, group.workloads)),
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
        findings=tuple(_report(key.namespace, each) for each in findings),
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


def waiting_pods(snapshot: ClusterSnapshot, groups: Iterable[SpreadGroup]) -> list[Pod]:
    """Return the pods without a node that have the constraint of one of some groups."""
    templates = {
        (group.key.namespace, template.labels, id(template.spec)) for group in groups for template in group.carriers
    }
    return [pod for pod in snapshot.waiting_pods.values() if (pod.namespace, pod.labels, id(pod.spec)) in templates]


def pending_pods(pods: Iterable[Pod], predictor: Predictor | None) -> tuple[PendingPods, ...]:
    """Return why pods have no node, by workload and reason, the most pods first.

    The predictor's view shows the pods. It is None if not all is known that decides.
    """
    nodes = [] if predictor is None else sorted(predictor.view.snapshot.nodes)
    known: dict[tuple[str, Labels, int, str], WhyPending] = {}
    found: dict[tuple[WorkloadName, WhyPending], list[str]] = {}
    for pod in pods:
        own_volumes = pod.spec.stateful_claims or pod.spec.ephemeral_volumes
        template = pod.namespace, pod.labels, id(pod.spec), pod.name if own_volumes else ""
        if (why := known.get(template)) is None:
            unread = WhyPending(0, (), Unknown("rights", "not all that decides where pods go may be read"))
            why = known[template] = unread if predictor is None else why_pending(predictor.prepare(pod), nodes)
        found.setdefault((workload_of(pod), why), []).append(pod.name)
    reports = [_pending(name, why, names) for (name, why), names in found.items()]
    return tuple(sorted(reports, key=lambda each: (-each.pods, each.namespace, str(each.workload), each.pod)))


def _pending(name: WorkloadName, why: WhyPending, pods: list[str]) -> PendingPods:
    return PendingPods(
        namespace=name.namespace,
        workload=WorkloadReference.of(name),
        pods=len(pods),
        pod=min(pods),
        message=str(why),
        rejections=tuple(
            RejectedNodesReport(
                plugin=each.plugin,
                topology_key=each.topology_key,
                nodes=each.nodes,
                message=f"{each.why} ({each.example})",
            )
            for each in why.rejected
        ),
    )
