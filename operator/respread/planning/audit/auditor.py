"""Audits every spread group of a cluster, from one snapshot to the next, at the cost of what has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.cluster.meta import Labels
from respread.cluster.objects import Node
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.planning.audit.finding import Finding
from respread.planning.audit.limit_rules import without_a_place
from respread.planning.audit.rules import judge
from respread.planning.audit.subject import KnownNodes, Subject, subjects_of
from respread.planning.placement import replacement_of
from respread.scheduling.filters.topology_spread import counts_as_pod
from respread.scheduling.predictor import Predictor
from respread.spread.group import DomainIndex, GroupKey, SpreadGroup, Template
from respread.spread.index import Spread


class WorkloadFinding(NamedTuple):
    """A finding about the constraint of workloads."""

    finding: Finding
    workloads: tuple[WorkloadName, ...]
    """The workloads whose pods have the constraint and the fault, sorted."""


Findings: TypeAlias = Mapping[GroupKey, tuple[WorkloadFinding, ...]]
"""By group; groups without a finding are left out."""


class _Audited(NamedTuple):
    """A group when it was audited, and the result."""

    group: SpreadGroup
    waiting: tuple[int, int]
    findings: tuple[WorkloadFinding, ...]


class Auditor:
    """Keeps the findings about the groups of the last snapshot, and audits only what the next one changes."""

    def __init__(self, *, foresees_room: bool = True) -> None:
        """Start without a cluster.

        If it `foresees_room`, it finds what lacks room for the next scale-up, which changes with every pod, and not
        only what pods wait for.
        """
        self._foresees_room = foresees_room
        self._full: dict[GroupKey, tuple[WorkloadFinding, ...]] = {}
        self._domains = DomainIndex()
        self._nodes = KnownNodes(Map(), self._domains)
        self._audited: dict[GroupKey, _Audited] = {}

    def update(self, snapshot: ClusterSnapshot, spread: Spread, predictor: Predictor | None = None) -> Findings:
        """Return what is found about the groups of a snapshot.

        The predictor's view is advanced to the snapshot; without one, room is not known.
        """
        known = self._audited
        if self._take_over(snapshot.nodes):
            known = {}
        waiting = _waiting_pods(snapshot)
        audited: dict[GroupKey, _Audited] = {}
        for key, group in spread.groups.items():
            pods = waiting.get(key.namespace)
            numbers = (0, 0) if pods is None else _numbers(group, pods)
            before = known.get(key)
            if before is None or before.group is not group or before.waiting != numbers:
                before = _Audited(group, numbers, self._audit(snapshot, group, numbers, judge))
            audited[key] = before
        if audited.keys() != self._audited.keys():
            self._domains.forget_others({(key.eligibility, key.topology_key) for key in audited})
        self._audited = audited
        found = {key: each.findings for key, each in audited.items() if each.findings}
        return found if predictor is None else found | self._without_room(snapshot, predictor, waiting)

    def _without_room(
        self, snapshot: ClusterSnapshot, predictor: Predictor, waiting: Mapping[str, Mapping[Labels, list[Pod]]]
    ) -> dict[GroupKey, tuple[WorkloadFinding, ...]]:
        """Return the constraints without another finding that leave only domains without room."""
        before, self._full = self._full, {}
        # Until a domain has the most that the constraint allows, it excludes none.
        tight = [
            (key, each)
            for key, each in self._audited.items()
            if (self._foresees_room or each.waiting[1])
            and not each.findings
            and key.when_unsatisfiable == "DoNotSchedule"
            and each.group.skew >= key.max_skew
        ]
        if tight:
            predictor.view.advance(snapshot)
        for key, each in tight:
            there = waiting.get(key.namespace, {}) if each.waiting[1] else {}
            judged = partial(_judge_room, snapshot, each.group, predictor, there)
            found = self._audit(snapshot, each.group, each.waiting, judged)
            if found:
                known = before.get(key, ())
                self._full[key] = known if known == found else found
        return self._full

    def _take_over(self, nodes: Map[str, Node]) -> bool:
        """Take over the current nodes, and return whether something has changed that findings depend on."""
        before = self._nodes.nodes
        if nodes is before:
            return False
        alike = len(nodes) == len(before) and all(
            (old := before.get(name)) is not None and (old is node or _looks(old) == _looks(node))
            for name, node in nodes.items()
        )
        self._domains.advance(nodes)
        if alike:
            self._nodes.nodes = nodes
            return False
        self._nodes = KnownNodes(nodes, self._domains)
        return True

    def _audit(
        self,
        snapshot: ClusterSnapshot,
        group: SpreadGroup,
        waiting: tuple[int, int],
        judged: Callable[[Subject], Finding | None],
    ) -> tuple[WorkloadFinding, ...]:
        """Return what is found about the constraint of a group by one question, which is asked once for equal pods."""
        found: dict[tuple[int, bool], tuple[Finding | None, list[Template]]] = {}
        only_own = _counts_only_own(group, snapshot)
        for template in group.carriers:
            if template.spec.pinned_to_node:
                continue
            alike = id(template.spec), group.key.selector.matches(template.labels)
            if alike not in found:
                subject = self._subject(group, template, waiting, only_own=only_own)
                found[alike] = judged(subject), []
            found[alike][1].append(template)
        return tuple(
            WorkloadFinding(finding, _workloads(snapshot, group.key.namespace, templates))
            for finding, templates in found.values()
            if finding is not None
        )

    def _subject(self, group: SpreadGroup, template: Template, waiting: tuple[int, int], *, only_own: bool) -> Subject:
        counted, carrying = waiting
        own = subjects_of(group.key.namespace, template, self._nodes)
        given = Subject(template=template, key=group.key, keys=(group.key,), position=None, nodes=self._nodes)
        return msgspec.structs.replace(
            next((each for each in own if each.key == group.key), given),
            pods=sum(group.counts.values()) + counted,
            only_own=only_own,
            waiting=carrying,
            counts=group.counts,
        )


def _counts_only_own(group: SpreadGroup, snapshot: ClusterSnapshot) -> bool:
    """Return whether all pods that the constraint of a group counts have it. Pods of two templates may look alike."""
    if not {template.labels for template in group.carriers}.issuperset(group.matched):
        return False
    specs = {id(template.spec) for template in group.carriers}
    label_sets: Map[Labels, PodsByName] = snapshot.pods_by_labels.get(group.key.namespace, Map())
    for labels in group.matched:
        pods = label_sets[labels].values()
        have_it = specs.issuperset({id(pod.spec) for pod in pods})
        if not have_it and any(counts_as_pod(pod) and id(pod.spec) not in specs for pod in pods):
            return False
    return True


def _looks(node: Node) -> tuple[object, ...]:
    """Return what the rules look at."""
    return node.labels, node.taints, node.unschedulable


def _waiting_pods(snapshot: ClusterSnapshot) -> Mapping[str, Mapping[Labels, list[Pod]]]:
    """Return the pods that wait for the scheduler, by namespace and labels."""
    found: defaultdict[str, defaultdict[Labels, list[Pod]]] = defaultdict(lambda: defaultdict(list))
    for pod in snapshot.waiting_pods.values():
        if not pod.spec.has_scheduling_gates:
            found[pod.namespace][pod.labels].append(pod)
    return found


def _numbers(group: SpreadGroup, pods: Mapping[Labels, list[Pod]]) -> tuple[int, int]:
    """Return how many waiting pods a group counts, and how many have it."""
    matched = frozenset(group.matched)
    counted = sum(len(each) for labels, each in pods.items() if labels in matched)
    templates = {(template.labels, id(template.spec)) for template in group.carriers}
    carrying = sum((labels, id(pod.spec)) in templates for labels, each in pods.items() for pod in each)
    return counted, carrying


def _judge_room(
    snapshot: ClusterSnapshot,
    group: SpreadGroup,
    predictor: Predictor,
    waiting: Mapping[Labels, list[Pod]],
    subject: Subject,
) -> Finding | None:
    """Return whether the constraint leaves a waiting pod, or one more, only domains without a place for it.

    Placed pods may have labels that waiting ones lack: the API server adds the zone of the node.
    """
    spec = subject.template.spec
    own_volumes = spec.stateful_claims or spec.ephemeral_volumes
    if own_volumes and not subject.waiting:
        return None  # Where the volume of one more pod will be is not known.
    counted = (pods for labels, pods in waiting.items() if group.key.selector.matches(labels))
    alike = (pod for pods in counted for pod in pods if pod.spec is spec)
    if not subject.waiting:
        alike = (replacement_of(pod) for pod in _pods_of(snapshot, group.key.namespace, subject.template))
    for pod in sorted(alike, key=lambda pod: pod.name) if own_volumes else islice(alike, 1):
        prepared = predictor.prepare(pod)
        if (found := without_a_place(subject, group, prepared, predictor.view.table)) is not None:
            return found
    return None


def _pods_of(snapshot: ClusterSnapshot, namespace: str, template: Template) -> Iterator[Pod]:
    by_labels = snapshot.pods_by_labels.get(namespace, Map())
    return (pod for pod in by_labels.get(template.labels, Map()).values() if pod.spec is template.spec)


def _workloads(snapshot: ClusterSnapshot, namespace: str, templates: list[Template]) -> tuple[WorkloadName, ...]:
    return tuple(
        sorted({workload_of(pod) for template in templates for pod in _pods_of(snapshot, namespace, template)})
    )
