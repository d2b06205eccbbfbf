"""The verdict of the book of budgets equals the API server's, and the API server accepts plans within the book.

The model below is written from `EvictionREST.Create` alone, for objects in the form of the API.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.api.reasons import Held, Reason
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod, PodSpec
from respread.planning.victims.budgets import BudgetBook, Free, Needs
from tests.worlds import cluster

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
SPEC = PodSpec()
KEYS = ("app", "tier")
VALUES = ("web", "api")


def matches(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """`LabelSelectorAsSelector(…).Matches(…)`."""
    if selector is None or any(labels.get(key) != value for key, value in selector["matchLabels"].items()):
        return False
    for expression in selector["matchExpressions"]:
        if (expression["operator"] in {"In", "NotIn"}) != bool(expression["values"]):
            return False  # it can't be converted, and the handler ignores the budget
    return all(holds(expression, labels) for expression in selector["matchExpressions"])


def holds(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    key, values = expression["key"], expression["values"]
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]


def evict(pod: dict[str, Any], budgets: list[dict[str, Any]]) -> tuple[int, str]:  # noqa: PLR0911 - as the handler has it
    """Evict a pod as the API server would, and return the status code and the subject of the answer."""
    if pod["phase"] in {"Succeeded", "Failed", "Pending"} or pod["deleting"]:
        return 201, "none"
    selecting = [each for each in budgets if matches(each["selector"], pod["labels"])]
    if len(selecting) > 1:
        return 500, "overlap"
    if not selecting:
        return 201, "none"
    (budget,) = selecting
    status = budget["status"]
    if not pod["ready"]:
        if budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow":
            return 201, "none"
        if status["currentHealthy"] >= status["desiredHealthy"] and status["desiredHealthy"] > 0:
            return 201, "none"
    if status["observedGeneration"] < budget["generation"]:
        return 429, "retry"
    if status["disruptionsAllowed"] < 0 or len(status["disruptedPods"]) > 2000:
        return 403, "status"
    if status["disruptionsAllowed"] == 0:
        return 429, "held"
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"].append(pod["name"])
    return 201, budget["name"]


labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2)
selectors = st.none() | st.fixed_dictionaries(
    {
        "matchLabels": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
        "matchExpressions": st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(KEYS),
                    "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
                    "values": st.lists(st.sampled_from(VALUES), max_size=2, unique=True),
                }
            ),
            max_size=2,
        ),
    }
)
statuses = st.fixed_dictionaries(
    {
        "observedGeneration": st.integers(0, 2),
        "disruptionsAllowed": st.integers(-1, 3),
        "currentHealthy": st.integers(0, 3),
        "desiredHealthy": st.integers(0, 3),
        "disruptedPods": st.sampled_from([0, 0, 0, 1, 2000, 2001]).map(
            lambda count: [f"gone-{n}" for n in range(count)]
        ),
    }
)
budgets_of_one_namespace = st.lists(
    st.fixed_dictionaries(
        {
            "selector": selectors,
            "generation": st.integers(1, 2),
            "unhealthyPodEvictionPolicy": st.sampled_from(["IfHealthyBudget", "AlwaysAllow"]),
            "status": statuses,
        }
    ),
    max_size=3,
).map(lambda budgets: [{**budget, "name": f"budget-{index}"} for index, budget in enumerate(budgets)])
pods_of_one_namespace = st.lists(
    st.fixed_dictionaries(
        {
            "labels": labels,
            "phase": st.sampled_from(["Running", "Running", "Running", "Running", "Pending", "Succeeded", "Failed"]),
            "deleting": st.sampled_from([False, False, False, True]),
            "ready": st.sampled_from([True, True, False]),
        }
    ),
    min_size=1,
    max_size=6,
).map(lambda pods: [{**pod, "name": f"pod-{index}"} for index, pod in enumerate(pods)])


def typed_pod(pod: dict[str, Any]) -> Pod:
    return Pod(
        namespace="shop",
        name=pod["name"],
        uid=f"uid-{pod['name']}",
        spec=SPEC,
        labels=Map(pod["labels"]),
        phase=pod["phase"],
        ready=pod["ready"],
        node_name="node-1",
        deletion_timestamp=NOW if pod["deleting"] else None,
    )


def typed_budget(budget: dict[str, Any]) -> PodDisruptionBudget:
    selector, status = budget["selector"], budget["status"]
    return PodDisruptionBudget(
        namespace="shop",
        name=budget["name"],
        selector=None
        if selector is None
        else LabelSelector(
            match_labels=Map(selector["matchLabels"]),
            match_expressions=msgspec.convert(selector["matchExpressions"], type=tuple[LabelSelectorRequirement, ...]),
        ),
        unhealthy_pod_eviction_policy=budget["unhealthyPodEvictionPolicy"],
        generation=budget["generation"],
        observed_generation=status["observedGeneration"],
        disruptions_allowed=status["disruptionsAllowed"],
        current_healthy=status["currentHealthy"],
        desired_healthy=status["desiredHealthy"],
        expected_pods=3,
        disrupted_pods=Map(dict.fromkeys(status["disruptedPods"], NOW)),
    )


def expected(code: int, about: str) -> object:
    if code == 201:
        return Free if about == "none" else Needs
    return {
        (429, "held"): Reason.HELD_BY_BUDGET,
        (429, "retry"): Reason.BUDGET_OUT_OF_DATE,
        (403, "status"): Reason.HELD_BY_BUDGET,
        (500, "overlap"): Reason.OVERLAPPING_BUDGETS,
    }[code, about]


@given(pods_of_one_namespace, budgets_of_one_namespace)
def test_the_verdict_for_a_single_pod_is_that_of_the_api_server(
    pods: list[dict[str, Any]], budgets: list[dict[str, Any]]
) -> None:
    snapshot = cluster([], map(typed_pod, pods), poddisruptionbudgets=map(typed_budget, budgets))
    book = BudgetBook(snapshot)
    for pod in pods:
        copies = msgspec.json.decode(msgspec.json.encode(budgets))
        code, about = evict(pod, copies)
        verdict = book.verdict(typed_pod(pod))
        assert (verdict.reason if isinstance(verdict, Held) else type(verdict)) == expected(code, about)
        if isinstance(verdict, Needs):
            assert verdict.budget.name == about


@given(pods_of_one_namespace, budgets_of_one_namespace)
def test_the_api_server_accepts_all_evictions_that_the_book_allows(
    pods: list[dict[str, Any]], budgets: list[dict[str, Any]]
) -> None:
    snapshot = cluster([], map(typed_pod, pods), poddisruptionbudgets=map(typed_budget, budgets))
    book = BudgetBook(snapshot)
    for pod in pods:
        verdict = book.verdict(typed_pod(pod))
        if isinstance(verdict, Held):
            # The book counts like the server, except for unready pods. The server evicts these without a disruption
            # only while it still counts the other evicted pods as healthy.
            before = BudgetBook(snapshot).verdict(typed_pod(pod))
            assert evict(pod, budgets)[0] != 201 or (not pod["ready"] and isinstance(before, Free))
        else:
            assert book.take(typed_pod(pod)) == verdict
            assert evict(pod, budgets)[0] == 201


@given(pods_of_one_namespace, budgets_of_one_namespace, st.lists(st.integers(0, 5), max_size=12))
def test_returned_disruptions_restore_the_book(
    pods: list[dict[str, Any]], budgets: list[dict[str, Any]], order: list[int]
) -> None:
    snapshot = cluster([], map(typed_pod, pods), poddisruptionbudgets=map(typed_budget, budgets))
    book = BudgetBook(snapshot)
    before = [book.verdict(typed_pod(pod)) for pod in pods]
    taken: list[Pod] = []
    for index in order:
        pod = typed_pod(pods[index % len(pods)])
        if pod in taken:
            taken.remove(pod)
            book.give_back(pod)
        elif not isinstance(book.verdict(pod), Held):
            book.take(pod)
            taken.append(pod)
    for pod in taken:
        book.give_back(pod)
    assert [book.verdict(typed_pod(pod)) for pod in pods] == before
