"""The book's verdict on random pods and budgets equals the real API server's answer to a dry run."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

from respread.api.reasons import Held
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.eviction_api import EvictionApi
from respread.planning.victims.budgets import BudgetBook
from respread_sandbox import Sandbox
from tests.evicting import evict
from tests.integration.eviction_cluster import EvictionCluster, requests_to
from tests.integration.snapshots import take_snapshot

WORLDS: Final = 45
LABELS: Final = [{"app": "web"}, {"app": "web", "tier": "a"}, {"app": "api"}, {}]
SELECTORS: Final[list[Any]] = [
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "web", "tier": "a"}},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]},
    {},
    None,
]


def make_pods_and_budgets(cluster: EvictionCluster, chance: random.Random) -> None:
    for number in range(4):
        cluster.add_pod(
            f"pod-{number}",
            labels=chance.choice(LABELS),
            phase=chance.choice(["Running"] * 5 + ["Pending", "Failed"]),
            ready=chance.random() < 0.7,
        )
    for number in range(chance.choice([1, 1, 2])):
        spec = {
            "selector": chance.choice(SELECTORS),
            "unhealthyPodEvictionPolicy": chance.choice([None, "IfHealthyBudget", "AlwaysAllow"]),
        }
        disrupted = {f"gone-{each}": "2026-11-21T09:00:00Z" for each in range(chance.choice([0, 0, 0, 1, 2000, 2001]))}
        cluster.add_budget(
            f"budget-{number}",
            spec=spec,
            observedGeneration=chance.choice([1, 1, 1, 0]),
            disruptionsAllowed=chance.choice([0, 0, 1, 2]),
            currentHealthy=chance.randrange(4),
            desiredHealthy=chance.randrange(4),
            disruptedPods=disrupted,
        )


async def test_the_verdict_on_a_budget_is_that_of_the_real_api_server(api_sandbox: Sandbox) -> None:
    chance = random.Random(1)
    clusters = [EvictionCluster(api_sandbox) for _ in range(WORLDS)]
    for cluster in clusters:
        make_pods_and_budgets(cluster, chance)
    snapshot = take_snapshot(api_sandbox)
    book = BudgetBook(snapshot)
    ours = {cluster.namespace for cluster in clusters}
    pods = [pod for key, pod in snapshot.pods.items() if key.namespace in ours]
    assert len(pods) == 4 * WORLDS
    seen: Counter[EvictionResult] = Counter()
    async with requests_to(api_sandbox.kubeconfig) as requests:
        api = EvictionApi(requests)
        for pod in pods:
            answer = await evict(api, pod, dry_run=True)
            assert isinstance(answer, Answer)
            verdict = book.verdict(pod)
            expected = answer.held.reason if answer.held else None
            assert (verdict.reason if isinstance(verdict, Held) else None) == expected, (pod, verdict, answer)
            seen[answer.result] += 1
    assert set(seen) == {
        EvictionResult.EVICTED,
        EvictionResult.HELD_BY_BUDGET,
        EvictionResult.BUDGET_OUT_OF_DATE,
        EvictionResult.BUDGET_REFUSED,
        EvictionResult.OVERLAPPING_BUDGETS,
    }
