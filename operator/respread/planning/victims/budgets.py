"""PodDisruptionBudgets, evaluated as by the API server's Eviction handler, so that no eviction is sent unnecessarily.

`BudgetBook.verdict` follows `EvictionREST.Create` (pkg/registry/core/pod/storage/eviction.go) step by step, based on
the budgets' status. It subtracts two things from what the status allows: what a plan has already taken from the budget,
and evictions in flight that the status can't show yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from typing import Final, TypeAlias

import msgspec
from immutables import Map

from respread.api.policy import VictimRules
from respread.api.reasons import Held, Reason, number_of
from respread.cluster.incremental import changed_keys
from respread.cluster.meta import Labels, ObjectKey
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.selectors import Matching, Selector, SelectorError, compile_selector
from respread.cluster.state import ClusterSnapshot, PodsByName

MAX_DISRUPTED_PODS: Final = 2000
"""If a budget's status has more unconfirmed evictions than this, the API server refuses all others."""
_NAMED: Final = 3
"""How many of the budgets that select a pod a message names. There may be thousands, and as many pods."""


class Free(msgspec.Struct, frozen=True):
    """No budget limits the pod's eviction."""


class Needs(msgspec.Struct, frozen=True):
    """The pod's eviction uses one of the disruptions that a budget allows."""

    budget: ObjectKey
    allowed: int
    """How many it allows, including this one."""


BudgetVerdict: TypeAlias = Free | Needs | Held
BudgetState: TypeAlias = tuple[object, ...]
"""The budgets that select some pods, each with the number of disruptions that it allows beyond those in flight, and the
number of these that its status may still count as healthy."""


class BudgetHoldsError(ValueError):
    """A plan would evict a pod that its budget holds. The message says why."""


class BudgetBook:
    """What the budgets of a snapshot still allow.

    The planner owns it: `take` and `give_back` change it, and a `fork` changes independently.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, in_flight: Iterable[Pod] = (), index: BudgetIndex | None = None
    ) -> None:
        """Read the budgets of a snapshot, to which the index is advanced.

        The API server has accepted the evictions of the pods in flight, which are as the watch last showed them. One
        that is not terminating there was evicted just now, and may be missing from the budget's status.
        """
        self._index = BudgetIndex() if index is None else index
        self._index.advance(snapshot)
        self._by_labels: dict[tuple[str, Labels], tuple[PodDisruptionBudget, ...]] = {}
        self._healthy: dict[ObjectKey, int] = {}
        """How many healthy pods a budget has, those in flight among them, once that was asked."""
        self._in_flight: Counter[ObjectKey] = Counter()
        """By budget, how many of its pods are in flight."""
        self._unseen: Counter[ObjectKey] = Counter()
        """How many of these the budget's status may still count as healthy."""
        self._leaving: Counter[ObjectKey] = Counter()
        """How many of these are healthy in the snapshot."""
        self._namespaces_in_flight: Counter[str] = Counter()
        self._taken_of: dict[ObjectKey, ObjectKey | None] = {}
        self._taken: Counter[ObjectKey] = Counter()
        for pod in in_flight:
            self.count_in_flight(pod, 1)

    def fork(self) -> BudgetBook:
        """Return a book in the same state; what is taken of either leaves the other alone."""
        other = copy(self)
        other._taken_of, other._taken = self._taken_of.copy(), self._taken.copy()  # noqa: SLF001 - our own class
        return other

    def count_in_flight(self, pod: Pod, times: int) -> None:
        """Note that one more pod is in flight, or, with -1 times, no longer. Earlier forks become wrong."""
        for budget in self.budgets_of(pod):
            self._in_flight[budget.key] += times
            self._namespaces_in_flight[budget.namespace] += times
            if _is_healthy(pod, budget):
                self._unseen[budget.key] += times
            shown = self._index.shown(pod)
            if shown is not None and _is_healthy(shown, budget):
                self._leaving[budget.key] += times

    def budgets_of(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets that select a pod, sorted by name."""
        return self._of(pod.namespace, pod.labels)

    def _of(self, namespace: str, labels: Labels) -> tuple[PodDisruptionBudget, ...]:
        where = (namespace, labels)
        if (found := self._by_labels.get(where)) is None:
            found = self._by_labels[where] = self._index.of(namespace, labels)
        return found

    def has_in_flight(self, namespace: str) -> bool:
        """Tell whether evictions in flight are to be taken off what budgets of a namespace allow."""
        return self._namespaces_in_flight[namespace] > 0

    def standing(self, namespace: str, labels: Labels) -> BudgetState:
        """Return what the verdicts about pods with these labels depend on, before anything is taken."""
        budgets = self._of(namespace, labels)
        states = ((budget, self._allowed(budget), self._unseen[budget.key]) for budget in budgets)
        return self._index.unread(namespace), *states

    def verdict(self, pod: Pod) -> BudgetVerdict:
        """Return whether budgets allow the eviction of a pod.

        Nothing else is checked: a DaemonSet's pod may be `Free`.
        """
        if pod.terminating or pod.finished or pod.phase == "Pending":
            return Free()
        if (unread := self._index.unread(pod.namespace)) is not None:
            return Held(
                Reason.UNREAD_OBJECT, f"it is not known whether a PodDisruptionBudget allows its eviction: {unread}"
            )
        budgets = self.budgets_of(pod)
        if not budgets:
            return Free()
        if len(budgets) > 1:
            more = ", …" if len(budgets) > _NAMED else ""
            return Held(
                Reason.OVERLAPPING_BUDGETS,
                f"{len(budgets)} PodDisruptionBudgets select it "
                f"({', '.join(each.name for each in budgets[:_NAMED])}{more}), and the "
                "Eviction API refuses pods with more than one: change their selectors so that one remains",
            )
        (budget,) = budgets
        return Free() if not pod.ready and self._frees_unready(budget) else self._decrement(budget, pod)

    def take(self, pod: Pod) -> Free | Needs:
        """Record that a plan evicts a pod, and return the verdict for it.

        Raises:
            BudgetHoldsError: its budget holds it, or it was already taken.
        """
        if pod.key in self._taken_of:
            raise BudgetHoldsError(f"{pod.key} was taken already")
        verdict = self.verdict(pod)
        if isinstance(verdict, Held):
            raise BudgetHoldsError(f"{pod.key} may not be evicted: {verdict}")
        if isinstance(verdict, Needs):
            self._taken[verdict.budget] += 1
            self._taken_of[pod.key] = verdict.budget
        else:
            self._taken_of[pod.key] = None
        return verdict

    def may_all_go(self, pods: Iterable[Pod]) -> bool:
        """Whether several pods, none of them taken yet, may be evicted together."""
        taken: list[Pod] = []
        try:
            for pod in pods:
                self.take(pod)
                taken.append(pod)
        except BudgetHoldsError:
            return False
        finally:
            for pod in taken:
                self.give_back(pod)
        return True

    def give_back(self, pod: Pod) -> None:
        """Undo `take`.

        Raises:
            KeyError: it was not taken.
        """
        budget = self._taken_of.pop(pod.key)
        if budget is not None:
            self._taken[budget] -= 1

    def _frees_unready(self, budget: PodDisruptionBudget) -> bool:
        """Whether evicting a pod that is not Ready needs no disruption of the budget (`unhealthyPodEvictionPolicy`)."""
        healthy = budget.current_healthy - self._taken[budget.key] - self._unseen[budget.key]
        return budget.unhealthy_pod_eviction_policy == "AlwaysAllow" or healthy >= budget.desired_healthy > 0

    def _decrement(self, budget: PodDisruptionBudget, pod: Pod) -> Needs | Held:
        """Mirrors `checkAndDecrement`."""
        name = f"PodDisruptionBudget {budget.name}"
        if budget.observed_generation < budget.generation:
            return Held(
                Reason.BUDGET_OUT_OF_DATE,
                f"{name} has changed and the disruption controller has not caught up (generation {budget.generation}, "
                f"observedGeneration {budget.observed_generation}): if that lasts, is the kube-controller-manager "
                "running?",
            )
        if budget.disruptions_allowed < 0 or len(budget.disrupted_pods) > MAX_DISRUPTED_PODS:
            return Held(
                Reason.HELD_BY_BUDGET,
                f"the status of {name} does not make sense to the API server (disruptionsAllowed "
                f"{budget.disruptions_allowed}, {len(budget.disrupted_pods)} disruptedPods of at most "
                f"{MAX_DISRUPTED_PODS}): is the disruption controller running?",
            )
        allowed, taken = self._allowed(budget), self._taken[budget.key]
        if allowed > taken:
            return Needs(budget.key, allowed - taken)
        named = budget.name if budget.disruptions_allowed == 0 and _never_allows(budget) else ""
        return Held(Reason.HELD_BY_BUDGET, self._why_none_left(budget, pod, allowed, taken), named=named)

    def _why_none_left(self, budget: PodDisruptionBudget, pod: Pod, allowed: int, taken: int) -> str:
        name = f"PodDisruptionBudget {budget.name}"
        if budget.disruptions_allowed == 0:
            return f"{name} allows no disruption: {_why_zero(budget)}{_unready_hint(budget, pod)}"
        if taken:
            disruptions = number_of(allowed, "disruption")
            return f"{name} allows {disruptions}, and {taken} of the plan's evictions need that already"
        disruptions = number_of(budget.disruptions_allowed, "disruption")
        return (
            f"{name} allowed {disruptions} when its status was last written, and evictions made since then have used "
            "that up"
        )

    def _allowed(self, budget: PodDisruptionBudget) -> int:
        """Return how many disruptions a budget allows beyond those in flight.

        The status may be older than the evictions in flight, or the watch of pods newer than the status. So the healthy
        pods are counted here too, without those in flight, and the smaller number is used.
        """
        by_status = min(budget.disruptions_allowed, MAX_DISRUPTED_PODS + 1 - len(budget.disrupted_pods))
        if not self._in_flight[budget.key]:
            return by_status
        by_count = self._healthy_in_all(budget) - self._leaving[budget.key] - budget.desired_healthy
        return max(0, min(by_status - self._unseen[budget.key], by_count))

    def _healthy_in_all(self, budget: PodDisruptionBudget) -> int:
        """Mirrors `countHealthyPods` of the disruption controller."""
        if (known := self._healthy.get(budget.key)) is None:
            selected = (pod for pods in self._index.pods(budget) for pod in pods.values())
            known = self._healthy[budget.key] = sum(_is_healthy(pod, budget) for pod in selected)
        return known


def why_no_budget(rules: VictimRules, budgets: Collection[PodDisruptionBudget]) -> Held | None:
    """Return why a policy's `victims.budget` protects a pod, or None if it does not."""
    if budgets or rules.budget != "Required":
        return None
    return Held(
        Reason.NO_BUDGET,
        "no PodDisruptionBudget selects it, and the policy's victims.budget is Required; create one that does, or set "
        "victims.budget: Optional",
    )


def _is_healthy(pod: Pod, budget: PodDisruptionBudget) -> bool:
    return pod.ready and not pod.terminating and pod.name not in budget.disrupted_pods


def _never_allows(budget: PodDisruptionBudget) -> bool:
    """Whether a budget allows no disruption even if all of its pods are healthy."""
    return 0 < budget.expected_pods <= budget.desired_healthy and budget.current_healthy <= budget.desired_healthy


def _why_zero(budget: PodDisruptionBudget) -> str:
    if budget.expected_pods <= 0:
        return (
            "it finds no pods, or none whose controller says how many there should be (with such pods only a number "
            "for minAvailable works)"
        )
    needed = budget.desired_healthy
    if budget.current_healthy > needed:
        return f"of its {budget.current_healthy} healthy pods {needed} are needed, and others are going"
    found = f"{budget.current_healthy} of its {budget.expected_pods} pods are healthy and {needed} have to be"
    if _never_allows(budget):
        return (
            f"{found}, so it allows no eviction even if all of them are healthy: raise maxUnavailable, or lower "
            "minAvailable"
        )
    return f"{found}; it will allow some when more are"


def _unready_hint(budget: PodDisruptionBudget, pod: Pod) -> str:
    if pod.ready or budget.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return ""
    return "; the pod is not Ready, so unhealthyPodEvictionPolicy: AlwaysAllow would let it go"


class BudgetIndex:
    """The budgets of one snapshot after the other. A namespace is only examined when it is requested."""

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
