"""The book of PodDisruptionBudgets allows the evictions that the API server allows, and explains refusals."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.api.reasons import Held, Reason
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterState
from respread.planning.victims.budgets import BudgetBook, BudgetHoldsError, BudgetIndex, Free, Needs
from tests.worlds import NOW, cluster, pod, spec

OF_WEB = LabelSelector(match_labels=Map(app="web"))
SPEC = spec()


def budget(
    name: str = "web",
    *,
    namespace: str = "default",
    selector: LabelSelector | None = OF_WEB,
    allowed: int = 1,
    **fields: Any,
) -> PodDisruptionBudget:
    given = {"current_healthy": 3, "desired_healthy": 2, "expected_pods": 3, **fields}
    return PodDisruptionBudget(namespace=namespace, name=name, selector=selector, disruptions_allowed=allowed, **given)


def web(name: str, **fields: Any) -> Pod:
    return pod(name, "node-1", SPEC, **fields)


def book(*budgets: PodDisruptionBudget, pods: tuple[Pod, ...] = (), in_flight: tuple[Pod, ...] = ()) -> BudgetBook:
    return BudgetBook(cluster([], pods, poddisruptionbudgets=budgets), in_flight)


def held(verdict: object) -> Held:
    assert isinstance(verdict, Held)
    return verdict


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        (None, False),
        (LabelSelector(), True),
        (OF_WEB, True),
        (LabelSelector(match_labels=Map(app="api")), False),
        (LabelSelector(match_expressions=(LabelSelectorRequirement("app", "NotIn", ("api",)),)), True),
        # the API server ignores a selector that it cannot read
        (LabelSelector(match_expressions=(LabelSelectorRequirement("app", "NotIn", ()),)), False),
        (LabelSelector(match_expressions=(LabelSelectorRequirement("app", "NotIn", ("not a label value",)),)), False),
    ],
)
def test_a_budget_covers_the_pods_that_its_selector_matches(selector: LabelSelector | None, selects: bool) -> None:
    verdict = book(budget(selector=selector)).verdict(web("a"))
    assert verdict == (Needs(ObjectKey("default", "web"), 1) if selects else Free())


def test_without_a_budget_of_the_namespace_pods_may_be_evicted() -> None:
    assert book().verdict(web("a")) == book(budget(namespace="other")).verdict(web("a")) == Free()
    assert book(budget(allowed=0)).verdict(web("a", phase="Pending")) == Free(), "the Eviction API asks no budget"


def test_a_plan_takes_disruptions_from_a_budget_and_returns_them() -> None:
    books = book(budget(allowed=2))
    a, b, c = web("a"), web("b"), web("c")
    assert books.take(a) == Needs(ObjectKey("default", "web"), 2)
    assert books.take(b) == Needs(ObjectKey("default", "web"), 1)
    why = held(books.verdict(c))
    assert why.reason == Reason.HELD_BY_BUDGET
    assert (
        why.message == "PodDisruptionBudget web allows 2 disruptions, and 2 of the plan's evictions need that already"
    )
    with pytest.raises(BudgetHoldsError, match="default/c may not be evicted: HeldByBudget"):
        books.take(c)
    with pytest.raises(BudgetHoldsError, match="default/a was taken already"):
        books.take(a)
    books.give_back(a)
    assert books.take(c) == Needs(ObjectKey("default", "web"), 1)
    with pytest.raises(KeyError):
        books.give_back(a)


@pytest.mark.parametrize(
    ("of", "reason", "words"),
    [
        (
            budget(allowed=0, current_healthy=4, desired_healthy=4, expected_pods=6),
            Reason.HELD_BY_BUDGET,
            "web allows no disruption: 4 of its 6 pods are healthy and 4 have to be; it will allow some when more are",
        ),
        (
            budget(allowed=0, current_healthy=5, desired_healthy=4),
            Reason.HELD_BY_BUDGET,
            "PodDisruptionBudget web allows no disruption: of its 5 healthy pods 4 are needed, and others are going",
        ),
        (budget(allowed=0, expected_pods=0), Reason.HELD_BY_BUDGET, "only a number for minAvailable works"),
        (
            budget(generation=3, observed_generation=2),
            Reason.BUDGET_OUT_OF_DATE,
            (
                "PodDisruptionBudget web has changed and the disruption controller has not caught up (generation 3, "
                "observedGeneration 2): if that lasts, is the kube-controller-manager running?"
            ),
        ),
        (budget(allowed=-1), Reason.HELD_BY_BUDGET, "is the disruption controller running?"),
        (
            budget(allowed=5, disrupted_pods=Map({f"pod-{n}": NOW for n in range(2001)})),
            Reason.HELD_BY_BUDGET,
            "2001 disruptedPods of at most 2000",
        ),
    ],
)
def test_the_message_says_why_a_budget_holds_a_pod(of: PodDisruptionBudget, reason: Reason, words: str) -> None:
    why = held(book(of).verdict(web("a")))
    assert why.reason == reason
    assert words in why.message
    full = budget(allowed=5, disrupted_pods=Map({f"pod-{n}": NOW for n in range(2000)}))
    assert book(full).verdict(web("a")) == Needs(ObjectKey("default", "web"), 1), "the API server records one more"


def test_several_budgets_hold_a_pod_permanently_and_up_to_three_are_named() -> None:
    """Of thousands of budgets, as many pods may have such a message."""
    why = held(book(budget("b", allowed=9), budget("a", allowed=9), budget("c")).verdict(web("a")))
    assert why.reason == Reason.OVERLAPPING_BUDGETS
    assert why.message == (
        "3 PodDisruptionBudgets select it (a, b, c), and the Eviction API refuses pods with more than one: change "
        "their selectors so that one remains"
    )
    assert "2 PodDisruptionBudgets select it (a, b)" in held(book(*map(budget, "ab")).verdict(web("a"))).message
    budgets = [budget(f"{'a' * 240}{number:05}", allowed=9) for number in range(2_000)]
    why = held(book(*budgets).verdict(web("a")))
    assert why.message.startswith("2000 PodDisruptionBudgets select it (")
    assert len(why.message) < 1_000


def test_an_unready_pod_of_a_budget_that_is_short_is_held_unless_that_always_allows_it() -> None:
    """Which verdict it has, compares `test_budgets_model` with the API server's."""
    short, unready = budget(allowed=0, current_healthy=1, desired_healthy=2), web("a", ready=False)
    assert "AlwaysAllow would let it go" in held(book(short).verdict(unready)).message
    assert book(msgspec.structs.replace(short, unhealthy_pod_eviction_policy="AlwaysAllow")).verdict(unready) == Free()


def test_unready_pods_may_be_evicted_after_the_plan_has_used_the_budget() -> None:
    books = book(budget(allowed=1, current_healthy=3, desired_healthy=2))
    books.take(web("a"))
    assert isinstance(books.verdict(web("b")), Held)
    assert isinstance(books.take(web("unready", ready=False)), Free)
    books.give_back(web("unready", ready=False))
    assert isinstance(books.verdict(web("b")), Held)
    of = budget(allowed=1, current_healthy=2, desired_healthy=2)
    for used in (book(of), book(of, pods=(web("a"), web("b")), in_flight=(web("b"),))):
        if isinstance(used.verdict(web("a")), Needs):
            used.take(web("a"))
        assert isinstance(used.verdict(web("unready", ready=False)), Held), "one is healthy without the other"


class TestInFlight:
    """Evictions in flight count once, whether the watch shows them in the pod, in the budget, or not yet."""

    pods = (web("a"), web("b"), web("c"), web("d"))
    of_four = budget(allowed=2, current_healthy=4, desired_healthy=2, expected_pods=4)

    def allowed(self, of: PodDisruptionBudget, pods: tuple[Pod, ...], *in_flight: Pod) -> int:
        verdict = book(of, pods=pods, in_flight=in_flight).verdict(web("d"))
        return verdict.allowed if isinstance(verdict, Needs) else 0

    def test_an_eviction_counts_before_the_pod_or_the_budget_shows_it(self) -> None:
        assert [self.allowed(self.of_four, self.pods, *map(web, sent)) for sent in ("", "a", "ab")] == [2, 1, 0]

    def test_an_eviction_counts_from_when_it_is_sent_until_it_has_ended(self) -> None:
        books, allowed = book(self.of_four, pods=self.pods), []
        for name, times in (("a", 1), ("b", 1), ("a", -1), ("b", -1)):
            books.count_in_flight(web(name), times)
            allowed.append(books.verdict(web("d")))
        assert [each.allowed if isinstance(each, Needs) else 0 for each in allowed] == [1, 0, 1, 2]

    going = web("a", deletion_timestamp=NOW)
    unready = web("a", ready=False)

    @pytest.mark.parametrize(
        ("of", "pods", "in_flight", "allowed"),
        [
            pytest.param({"allowed": 1, "disrupted_pods": Map(a=NOW)}, pods, web("a"), 1, id="only the budget shows"),
            pytest.param({}, (going, *pods[1:]), going, 1, id="only the pod shows it"),
            pytest.param({}, pods[1:], going, 1, id="after the deletion until the budget shows it"),
            pytest.param({"allowed": 1, "current_healthy": 3}, (going, *pods[1:]), going, 1, id="both show it"),
            pytest.param({}, (going, *pods[1:], web("e")), going, 2, id="a Ready replacement returns it"),
            pytest.param(
                {"allowed": 1, "current_healthy": 3, "expected_pods": 3},
                (unready, *pods[1:]), unready, 1, id="an unready pod uses none",
            ),
            pytest.param(
                {"allowed": 1, "current_healthy": 3}, pods, web("a"), 0, id="ready again, and the budget is late"
            ),
            pytest.param(
                {"allowed": 3, "current_healthy": 5, "expected_pods": 5},
                (*pods, web("e", ready=False)), web("a"), 1, id="no longer Ready, and not healthy",
            ),
        ],
    )  # fmt: skip
    def test_an_eviction_counts_once_whoever_shows_it(
        self, of: dict[str, Any], pods: tuple[Pod, ...], in_flight: Pod, allowed: int
    ) -> None:
        given = {"allowed": 2, "current_healthy": 4, "expected_pods": 4, **of}
        assert self.allowed(budget(**given), pods, in_flight) == allowed

    def test_the_message_mentions_evictions_in_flight(self) -> None:
        books = book(budget(allowed=1), pods=self.pods[:3], in_flight=(web("a"),))
        assert "evictions made since then have used that up" in held(books.verdict(web("b"))).message


def test_a_pod_is_shown_only_by_its_own_uid() -> None:
    """A StatefulSet's replacement has the evicted pod's name, and is not that pod."""
    evicted, other = web("web-1"), web("web-2")
    index = BudgetIndex()
    index.advance(cluster([], [msgspec.structs.replace(evicted, uid="uid-after"), other]))
    assert index.shown(evicted) is None
    assert index.shown(other) is other
    assert index.shown(web("web-3")) is None


def test_an_index_that_follows_the_cluster_answers_as_a_new_one() -> None:
    random, state, followed = Random(1), ClusterState(), BudgetIndex()
    label_sets = [Map(app=app, **more) for app in ("web", "api") for more in ({}, {"tier": "x"})]
    selectors = [None, LabelSelector(), OF_WEB, LabelSelector(match_labels=Map(tier="x"))]
    for _ in range(600):
        there = web(random.choice("abcdefgh"), labels=random.choice(label_sets))
        new = budget(there.name, selector=random.choice(selectors), allowed=9, desired_healthy=0)
        resource, changed = random.choice((("pods", there), ("poddisruptionbudgets", new)))
        state.apply(resource, [(changed.key, random.choice((changed, None)))])
        if random.random() < 0.5:
            one, other = (BudgetBook(state.snapshot, [there], index) for index in (followed, None))
            for labels in label_sets:  # With a pod in flight, the healthy ones of a budget are counted.
                assert one.standing("default", labels) == other.standing("default", labels)
