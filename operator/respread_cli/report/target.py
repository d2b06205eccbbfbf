"""The workload, pod or policy that a command is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Final

import click
import msgspec

from respread.api.policy import Policy
from respread.cluster.meta import Labels, ObjectKey
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Move, Plan
from respread.program.command_line import CommandError
from respread.spread.group import SpreadGroup
from respread_cli.report.skew_report import WORDS_OF_POLICIES, WorkloadReference, joined_words, workload_matches
from respread_cli.suggestions import close_to, did_you_mean

_PODS: Final = frozenset({"po", "pod", "pods"})
_POLICIES: Final = WORDS_OF_POLICIES


class Target(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a command is about: pods or policies, never both."""

    pods: tuple[Pod, ...] = ()
    """The pods of the selected workloads, or the selected pods; sorted by namespace and name."""
    workloads: tuple[WorkloadName, ...] = ()
    """Of these, sorted."""
    whole_workloads: bool = True
    """Whether workloads are selected, and not single pods of them."""
    policies: tuple[Policy, ...] = ()
    namespace: str | None = None
    """The namespace that counts for policies; None for all."""

    def concerns(self, group: SpreadGroup, plan: Plan) -> bool:
        """Return whether the pods have a group's constraint or are counted by it, or the policies restore the group."""
        if self.namespace not in {None, group.key.namespace}:
            return False
        return (
            plan.policies.get(group.key) in self._policy_names
            or not self._workload_names.isdisjoint(group.workloads)
            or any((group.key.namespace, labels) in self._labels for labels in group.matched)
        )

    def has_moved(self, move: Move) -> bool:
        """Return whether a move evicts one of the pods, or is made for one of the policies."""
        if self.pods:
            return move.pod.key in self._keys
        return move.policy in self._policy_names and self.namespace in {None, move.pod.namespace}

    @cached_property
    def _policy_names(self) -> frozenset[str]:
        return frozenset(policy.name for policy in self.policies)

    @cached_property
    def _workload_names(self) -> frozenset[WorkloadName]:
        return frozenset(self.workloads)

    @cached_property
    def _labels(self) -> frozenset[tuple[str, Labels]]:
        return frozenset((pod.namespace, pod.labels) for pod in self.pods)

    @cached_property
    def _keys(self) -> frozenset[ObjectKey]:
        return frozenset(pod.key for pod in self.pods)


def find_target(
    word: str, snapshot: ClusterSnapshot, policies: Iterable[Policy], namespace: str | None = None
) -> Target:
    """Return the target for `deploy/web`, `pod/web-1`, `crbp/default`, or just a name.

    A name is that of a workload, else of a pod, else of a policy.

    Args:
        word: the argument.
        snapshot: where to look for pods.
        policies: where to look for policies.
        namespace: where to look; None is everywhere, and all objects with the name are selected.

    Raises:
        CommandError: there is no such object.
    """
    policies = tuple(policies)
    kind, slash, name = word.rpartition("/")
    kind = kind.partition(".")[0].lower()

    def of_workloads() -> Target:
        return _of_pods(
            (pod for pod in _pods(snapshot, namespace) if workload_matches(word, workload_of(pod))),
            whole_workloads=True,
        )

    def single() -> Target:
        return _of_pods((pod for pod in _pods(snapshot, namespace) if pod.name == name), whole_workloads=False)

    def of_policies() -> Target:
        found = (each for each in policies if name in {each.object_name, each.name})
        there = (each for each in found if each.is_cluster_policy or namespace in {None, each.namespace})
        return Target(policies=tuple(there), namespace=namespace)

    ways: tuple[Callable[[], Target], ...] = (of_workloads, single, of_policies)
    if slash:
        ways = (single,) if kind in _PODS else (of_policies,) if kind in _POLICIES else (of_workloads,)
    for way in ways:
        target = way()
        if target.pods or target.policies:
            return target
    where = "" if namespace is None else f" in namespace {namespace}"
    what = "policy" if ways == (of_policies,) else "pod" if ways == (single,) else "workload with pods"
    if not slash:
        what = "workload with pods, no pod and no policy"
    meant = _meant(name, snapshot, policies, namespace)
    raise CommandError(f"there is no {what} named {name}{where}.{did_you_mean(meant)}")


def _meant(name: str, snapshot: ClusterSnapshot, policies: Iterable[Policy], namespace: str | None) -> list[str]:
    """Return the targets with names close to one, or with this name and of another kind."""
    words: dict[str, str] = {}
    for pod in _pods(snapshot, namespace):
        workload = workload_of(pod)
        words[pod.name] = f"pod/{pod.name}"
        words[workload.name] = str(WorkloadReference(workload.kind, workload.name))
    for each in policies:
        words.setdefault(each.object_name, f"{'crbp' if each.is_cluster_policy else 'rbp'}/{each.object_name}")
    return [words[each] for each in close_to(name, words)]


def one_target(ctx: click.Context, _param: click.Parameter, words: Sequence[str]) -> str | None:
    """Return the target that a command line names in one word, or as kubectl's `deployment web`; None without words.

    Raises:
        click.UsageError: it names several.
    """
    joined = joined_words(words)
    if len(joined) > 1:
        raise click.UsageError(f"name one target, not {' and '.join(joined)}.", ctx)
    return joined[0] if joined else None


def check_namespace(namespace: str | None, snapshot: ClusterSnapshot) -> None:
    """Refuse a namespace that does not exist, because no result must not look as if all were well.

    Raises:
        CommandError: the snapshot contains namespaces, and this one is not among them.
    """
    if namespace is None or not snapshot.namespaces or namespace in snapshot.namespaces:
        return
    if namespace not in snapshot.pods_by_labels:
        close = did_you_mean(close_to(namespace, snapshot.namespaces))
        raise CommandError(f"there is no namespace {namespace}.{close}")


def _of_pods(pods: Iterable[Pod], *, whole_workloads: bool) -> Target:
    found = tuple(sorted(pods, key=lambda pod: pod.key))
    return Target(
        pods=found, workloads=tuple(sorted({workload_of(pod) for pod in found})), whole_workloads=whole_workloads
    )


def _pods(snapshot: ClusterSnapshot, namespace: str | None) -> Iterator[Pod]:
    """Yield the unfinished pods of a namespace, or of all."""
    found = snapshot.pods_by_labels
    parts = found.values() if namespace is None else [found[namespace]] if namespace in found else []
    named = chain.from_iterable(by_labels.values() for by_labels in parts)
    return (pod for pods in named for pod in pods.values() if not pod.finished)
