"""What workloads lose with their nodes: for one simulation, and for the loss of each domain of a topology key in turn.

They are the JSON and YAML output, and the tables are made from them. docs/cli.md describes every field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, Literal

import msgspec

from respread.cluster.meta import ObjectKey
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.budgets import BudgetBook
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.quota_refusals import quota_refusals
from respread_cli.report.skew_report import ClusterReport
from respread_cli.report.target import WorkloadReference
from respread_cli.report.what_if import HypotheticalOutcome, stays_on_its_node


class Damage(StrEnum):
    """What the loss of nodes does to a workload, the worst first."""

    GONE = "Gone"
    """It had pods, and has none afterwards."""
    OUTAGE = "Outage"
    """It has none until replacements are Ready, and all of these find a node."""
    MISSING = "Missing"
    """It keeps some, and other pods find no node or are not created again."""
    UNHARMED = "Unharmed"
    """It keeps some, and all others find a node."""


_WORST_FIRST: Final = tuple(Damage)


class WorkloadLoss(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A workload that loses pods with their nodes."""

    namespace: str
    workload: WorkloadReference
    damage: Damage
    pods: int
    """With a node, before."""
    left: int
    """At once, before a replacement is created."""
    after: int
    """When every replacement that finds a node has one."""
    missing: int
    """Pods that find no node, or that no controller creates again. Those that were Pending before are not counted."""
    message: str
    """Why they find no node; empty if none is missing."""
    budgets: tuple[str, ...]
    """What its PodDisruptionBudgets say at once, if that is less than they want: a sentence each."""


class PendingWorkload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A workload with pods that have no node already."""

    namespace: str
    workload: WorkloadReference
    pods: int


class DomainLoss(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The loss of one domain."""

    domain: str
    nodes: int
    pods: int
    """Pods on them, without those of DaemonSets and static pods."""
    missing: int
    """Pods of all workloads that find no node, or that no controller creates again."""
    workloads: tuple[WorkloadLoss, ...]
    """The workloads that are harmed, the worst first."""
    unharmed: int
    """How many more workloads lose pods, keep some, and get all of them back."""
    quotas: tuple[str, ...] = ()
    """Which ResourceQuotas refuse replacements, a sentence each."""


class NamespaceLoss(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A namespace in the domain whose loss is worst for it."""

    namespace: str
    pods: int
    """With a node, of workloads."""
    worst_domain: str
    missing: int
    """Its pods that are missing after that."""
    gone: int
    """Its workloads that have no pods after that."""
    outages: int
    """Its workloads that have none for a time."""


class DomainLossReport(ClusterReport, frozen=True, kw_only=True, rename="camel"):
    """The loss of each domain of a topology key, one at a time."""

    kind: Literal["DomainLossReport"] = "DomainLossReport"
    topology_key: str
    domains: tuple[DomainLoss, ...]
    """The worst first."""
    namespaces: tuple[NamespaceLoss, ...]
    """The worst first."""
    pending: tuple[PendingWorkload, ...]
    """What has no node already, whatever is lost."""

    def names(self) -> Iterator[str]:
        """Yield the workloads that are harmed."""
        return (str(loss.workload) for domain in self.domains for loss in domain.workloads)


def workload_losses(
    before: ClusterSnapshot, nodes: Collection[str], outcome: HypotheticalOutcome
) -> tuple[WorkloadLoss, ...]:
    """Return what workloads lose with nodes, the worst first, and among equals by namespace and name.

    The pods of the nodes are gone at once.
    """
    on_nodes = [pod for name in nodes for pod in before.pods_by_node.get(name, {}).values() if _counts(pod)]
    missing, why = _missing(before, outcome)
    at_once = Counter(map(workload_of, on_nodes))
    names = at_once.keys() | missing.keys()
    namespaces = {name.namespace for name in names}
    pods, after = _running(before, namespaces), _running(outcome.snapshot, namespaces)
    budgets = _short_budgets(before, on_nodes)
    losses = [
        WorkloadLoss(
            namespace=name.namespace,
            workload=WorkloadReference.of(name),
            damage=_damage(left=pods[name] - at_once[name], after=after[name], missing=missing[name]),
            pods=pods[name],
            left=pods[name] - at_once[name],
            after=after[name],
            missing=missing[name],
            message=why.get(name, ""),
            budgets=budgets.get(name, ()),
        )
        for name in names
    ]
    return tuple(sorted(losses, key=_worst_first))


def domain_loss_report(
    view: ReadCluster,
    topology_key: str,
    lost: Iterable[tuple[str, Collection[str], HypotheticalOutcome]],
    namespace: str | None,
) -> DomainLossReport:
    """Return the loss of each domain for the output.

    `lost` has each domain with its nodes, and what its loss left. With a namespace, it tells of its workloads only.
    """
    before = view.snapshot
    domains: list[DomainLoss] = []
    losses: dict[str, tuple[WorkloadLoss, ...]] = {}
    for domain, nodes, outcome in lost:
        found = workload_losses(before, nodes, outcome)
        own = losses[domain] = tuple(loss for loss in found if namespace in (None, loss.namespace))
        harmed = tuple(each for each in own if each.damage is not Damage.UNHARMED)
        domains.append(
            DomainLoss(
                domain=domain,
                nodes=len(nodes),
                pods=sum(each.pods - each.left for each in own),
                missing=sum(each.missing for each in own),
                workloads=harmed,
                unharmed=len(own) - len(harmed),
                quotas=quota_refusals(before, outcome.snapshot, namespace),
            )
        )
    return DomainLossReport(
        source=view.source,
        time=view.time,
        notes=view.notes,
        topology_key=topology_key,
        domains=tuple(sorted(domains, key=_worst_domain_first)),
        namespaces=_by_namespace(before, losses, namespace),
        pending=_pending(before, namespace),
    )


def loss_metrics(report: DomainLossReport) -> str:
    """Return the figures of a report in the text format of Prometheus: one series for each namespace and domain."""
    name = "respread_domain_loss_pods"
    lines = [
        f"# HELP {name} Pods that would find no node, or not be created again, after the loss of a domain.",
        f"# TYPE {name} gauge",
    ]
    for domain in sorted(report.domains, key=lambda each: each.domain):
        missing = Counter({each.namespace: 0 for each in report.namespaces})
        for loss in domain.workloads:
            missing[loss.namespace] += loss.missing
        lines += (
            f'{name}{{namespace="{namespace}",topology_key="{report.topology_key}",domain="{domain.domain}"}} {pods}'
            for namespace, pods in sorted(missing.items())
        )
    return "\n".join(lines) + "\n"


def _counts(pod: Pod) -> bool:
    return bool(pod.node_name) and not pod.finished and not pod.terminating and not stays_on_its_node(pod)


def _running(snapshot: ClusterSnapshot, namespaces: Iterable[str | None]) -> Counter[WorkloadName]:
    """Return how many pods with a node the workloads of namespaces have."""
    return Counter(workload_of(pod) for each in namespaces for pod in snapshot.pods_in(each) if _counts(pod))


def _missing(
    before: ClusterSnapshot, outcome: HypotheticalOutcome
) -> tuple[Counter[WorkloadName], dict[WorkloadName, str]]:
    """Return how many pods of each workload are missing, and why they find no node."""
    missing: Counter[WorkloadName] = Counter()
    why: dict[WorkloadName, str] = {}
    for pod in outcome.lost:
        if not pod.finished:
            missing[workload_of(pod)] += 1
            why.setdefault(workload_of(pod), "no controller creates it again")
    for each in outcome.unplaced:
        if not was_pending(each.pod, before):
            missing[workload_of(each.pod)] += 1
            why.setdefault(workload_of(each.pod), each.why)
    return missing, why


def was_pending(pod: Pod, before: ClusterSnapshot) -> bool:
    """Return whether a pod had no node before either."""
    known = before.waiting_pods.get(pod.key)
    return known is not None and known.uid == pod.uid


def _damage(*, left: int, after: int, missing: int) -> Damage:
    if missing:
        return Damage.MISSING if after else Damage.GONE
    return Damage.UNHARMED if left else Damage.OUTAGE


def _worst_first(loss: WorkloadLoss) -> tuple[int, float, int, str, str]:
    share = loss.missing / max(1, loss.pods)
    return _WORST_FIRST.index(loss.damage), -share, -loss.missing, loss.namespace, str(loss.workload)


def _worst_domain_first(loss: DomainLoss) -> tuple[list[int], int, str]:
    damages = Counter(each.damage for each in loss.workloads)
    return [-damages[damage] for damage in _WORST_FIRST], -loss.missing, loss.domain


def _short_budgets(before: ClusterSnapshot, pods: Iterable[Pod]) -> Mapping[WorkloadName, tuple[str, ...]]:
    """Return what the PodDisruptionBudgets of workloads say when pods are gone, if fewer are healthy than they want."""
    book = BudgetBook(before)
    gone: Counter[ObjectKey] = Counter()
    of: dict[WorkloadName, dict[ObjectKey, PodDisruptionBudget]] = {}
    for pod in pods:
        for budget in book.budgets_of(pod):
            gone[budget.key] += pod.ready
            of.setdefault(workload_of(pod), {})[budget.key] = budget
    return {
        name: tuple(
            _short(budget, budget.current_healthy - gone[key])
            for key, budget in sorted(budgets.items())
            if budget.current_healthy - gone[key] < budget.desired_healthy
        )
        for name, budgets in of.items()
    }


def _short(budget: PodDisruptionBudget, healthy: int) -> str:
    return (
        f"PodDisruptionBudget {budget.name} wants {budget.desired_healthy} healthy pods and has {max(0, healthy)}, so "
        "its other pods can't be evicted until enough are Ready"
    )


def _by_namespace(
    before: ClusterSnapshot, losses: Mapping[str, tuple[WorkloadLoss, ...]], namespace: str | None
) -> tuple[NamespaceLoss, ...]:
    pods: Counter[str] = Counter()
    for name, number in _running(before, (namespace,)).items():
        pods[name.namespace] += number
    found = [
        min((_in_namespace(each, pods[each], domain, found) for domain, found in losses.items()), key=_worst_namespace)
        for each in pods
        if losses
    ]
    return tuple(sorted(found, key=_worst_namespace))


def _in_namespace(namespace: str, pods: int, domain: str, losses: Iterable[WorkloadLoss]) -> NamespaceLoss:
    own = [each for each in losses if each.namespace == namespace]
    damages = Counter(each.damage for each in own)
    return NamespaceLoss(
        namespace=namespace,
        pods=pods,
        worst_domain=domain,
        missing=sum(each.missing for each in own),
        gone=damages[Damage.GONE],
        outages=damages[Damage.OUTAGE],
    )


def _worst_namespace(loss: NamespaceLoss) -> tuple[int, int, int, str, str]:
    return -loss.gone, -loss.outages, -loss.missing, loss.namespace, loss.worst_domain


def _pending(before: ClusterSnapshot, namespace: str | None) -> tuple[PendingWorkload, ...]:
    pods = Counter(
        workload_of(pod)
        for pod in before.waiting_pods.values()
        if namespace in (None, pod.namespace) and not stays_on_its_node(pod)
    )
    return tuple(
        PendingWorkload(namespace=name.namespace, workload=WorkloadReference.of(name), pods=number)
        for name, number in sorted(pods.items())
    )
