"""Which PodDisruptionBudgets select which pods, kept from one snapshot to the next."""

from __future__ import annotations

from collections.abc import Iterator

from immutables import Map

from respread.cluster.grouped_pods import PodsByName
from respread.cluster.incremental import changed_keys
from respread.cluster.matching import Matching
from respread.cluster.meta import Labels
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.selectors import Selector, SelectorError, compile_selector
from respread.cluster.state import ClusterSnapshot


class BudgetIndex:
    """The budgets of one snapshot after the other. A namespace is only examined when it is requested."""

    __slots__ = ("_namespaces", "_snapshot")

    def __init__(self) -> None:
        self._snapshot = ClusterSnapshot()
        self._namespaces: dict[str, _Namespace] = {}

    def advance(self, snapshot: ClusterSnapshot) -> None:
        """Answer for another snapshot from now on."""
        self._snapshot = snapshot
        for gone in [name for name in self._namespaces if name not in snapshot.disruption_budgets]:
            del self._namespaces[gone]

    def of(self, namespace: str, labels: Labels) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets that select pods of a namespace with these labels, sorted by name."""
        known = self._namespace(namespace)
        return () if known is None else known.of(labels)

    def unread(self, namespace: str) -> str | None:
        """Return which budget of a namespace can't be decoded and what is wrong with it, if there is one."""
        unread = self._snapshot.unread.get("poddisruptionbudgets", Map())
        return next((each.fault for key, each in unread.items() if key.namespace in {namespace, ""}), None)

    def pods(self, budget: PodDisruptionBudget) -> Iterator[PodsByName]:
        """Yield the pods that a budget of the snapshot selects, by label set."""
        known = self._namespace(budget.namespace)
        pods: Map[Labels, PodsByName] = self._snapshot.pods_by_labels.get(budget.namespace, Map())
        if known is not None:
            yield from (pods[labels] for labels in known.label_sets(budget, pods))

    def shown(self, pod: Pod) -> Pod | None:
        """Return a pod as the snapshot shows it; None if it is gone, or another of that name."""
        found = self._snapshot.pods.get(pod.key)
        return found if found is not None and found.uid == pod.uid else None

    def _namespace(self, name: str) -> _Namespace | None:
        if (budgets := self._snapshot.disruption_budgets.get(name)) is None:
            return None
        if (known := self._namespaces.get(name)) is None:
            known = self._namespaces[name] = _Namespace()
        known.follow(budgets)
        return known


class _Namespace:
    __slots__ = ("_budgets", "_label_sets", "_matching", "_named", "_pods")

    def __init__(self) -> None:
        self._budgets: Map[str, PodDisruptionBudget] = Map()
        self._matching = Matching()
        self._named: dict[Selector, set[str]] = {}
        """The names of the budgets with a selector."""
        self._pods: Map[Labels, PodsByName] = Map()
        self._label_sets: set[Labels] = set()

    def follow(self, budgets: Map[str, PodDisruptionBudget]) -> None:
        """Take over the current budgets. Their statuses change often, their selectors rarely."""
        before, self._budgets = self._budgets, budgets
        if budgets is before:
            return
        for name in changed_keys(before, budgets):
            old, budget = before.get(name), budgets.get(name)
            if old is None or budget is None or old.selector != budget.selector:
                self._file(name, old, budget)

    def of(self, labels: Labels) -> tuple[PodDisruptionBudget, ...]:
        found = [name for selector in self._matching.selectors_of(labels) for name in self._named[selector]]
        return tuple(self._budgets[name] for name in sorted(found))

    def label_sets(self, budget: PodDisruptionBudget, pods: Map[Labels, PodsByName]) -> Iterator[Labels]:
        """Return the label sets of pods that a budget's selector matches."""
        if pods is not self._pods:
            self._pods = pods
            for labels in [labels for labels in self._label_sets if labels not in pods]:
                self._label_sets.remove(labels)
                self._matching.remove_labels(labels)
            for labels in pods:
                if labels not in self._label_sets:
                    self._label_sets.add(labels)
                    self._matching.add_labels(labels)
        return self._matching.labels_of(compile_selector(budget.selector))

    def _file(self, name: str, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        if old is not None and (selector := _selector(old)) is not None:
            self._named[selector].remove(name)
            if not self._named[selector]:
                del self._named[selector]
                self._matching.remove_selector(selector)
        if new is not None and (selector := _selector(new)) is not None:
            self._named.setdefault(selector, set()).add(name)
            self._matching.add_selector(selector)


def _selector(budget: PodDisruptionBudget) -> Selector | None:
    try:
        return compile_selector(budget.selector)
    except SelectorError:  # The API server ignores a budget with an invalid selector.
        return None
