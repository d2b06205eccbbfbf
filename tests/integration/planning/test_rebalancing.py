"""The operator restores the spread with the expected number of evictions, and no pod stays Pending.

All scenarios share a control plane and an operator (see `pools`). The expected evictions are computed by hand, and the
actual ones are counted twice: by the deleted pods, and by the API server's audit log.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.integration.pools import Pool, fewest_moves, holds
from tests.integration.workloads import HOSTNAME, ZONE, constraint, scale, wait_until

QUIET_SECONDS = 3
"""The time without a change after which a scenario counts as finished."""


def assert_evicted(pool: Pool, before: set[str], count: int) -> None:
    """Assert that this number of pods was evicted, no replacement among them, and that no other pod was deleted."""
    assert len(pool.evicted()) == len(before - pool.uids()) == count


def restore(pool: Pool, replicas: int, evictions: int, **spec: Any) -> None:
    """Create the policy, wait until the spread is restored, and assert that it took exactly so many evictions."""
    before = pool.uids()
    pool.rebalance(**spec)
    pool.wait_until_balanced(replicas, evictions)
    assert_evicted(pool, before, evictions)


def test_pods_of_one_zone_are_spread_over_five(pool: Pool) -> None:
    pool.add_zone("zone-a", 2)
    pool.deploy("web", 10, constraints=[constraint(ZONE, "web")])
    for zone in ("zone-b", "zone-c", "zone-d", "zone-e"):
        pool.add_zone(zone)
    counts = pool.counts()
    assert sorted(counts.values()) == [0, 0, 0, 0, 10]
    restore(pool, 10, 8)
    assert set(pool.counts().values()) == {2}


def test_two_hard_constraints_are_restored_when_a_zone_returns(pool: Pool) -> None:
    for zone in ("zone-a", "zone-b", "zone-c"):
        pool.add_zone(zone, 2)
    pool.deploy("web", 9, constraints=[constraint(ZONE, "web"), constraint(HOSTNAME, "web")])
    pool.remove_zone("zone-c")
    pool.wait_for(9)
    pool.add_zone("zone-c", 2)
    counts = pool.counts()
    # [5, 4, 0] becomes [3, 3, 3]. The nodes, with 3 2 2 2 0 0 pods, need no more moves than the zones.
    assert sorted(counts.values()) == [0, 4, 5]
    restore(pool, 9, 3)
    assert set(pool.counts().values()) == {3}
    assert holds(pool.counts(HOSTNAME).values())


def test_a_max_skew_of_two_is_restored_over_six_zones(pool: Pool) -> None:
    pool.add_zone("zone-a", 2)
    pool.deploy("web", 12, constraints=[constraint(ZONE, "web", max_skew=2)])
    for zone in ("zone-b", "zone-c", "zone-d", "zone-e", "zone-f"):
        pool.add_zone(zone)
    # Each other zone needs at least one pod, and then zone-a may keep three.
    restore(pool, 12, 9)
    assert holds(pool.counts().values(), 2)


def test_a_cordoned_zone_with_the_minimum_blocks_the_group(pool: Pool) -> None:
    pool.add_zone("zone-a")
    pool.add_zone("zone-b")
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")])
    cordoned = pool.add_zone("zone-c")
    pool.sandbox.nodes.cordon(*cordoned)
    before = pool.uids()
    pool.rebalance()
    pool.wait_until_blocked(6, "NoFeasibleNode", "zone-c holds the fewest pods, 0", f"{cordoned[0]} is cordoned")
    (violation,) = pool.status()["violations"]
    assert violation["reason"] == "NoFeasibleNode"
    assert pool.held_pods() == {"NoFeasibleNode": 6}
    (explained,) = pool.explain("deploy/web")["constraints"]
    assert (explained["reason"], explained["message"]) == (violation["reason"], violation["message"])
    assert explained["operator"]["message"] == violation["message"]
    time.sleep(QUIET_SECONDS)
    assert_evicted(pool, before, 0)
    pool.sandbox.nodes.uncordon(*cordoned)
    pool.wait_until_balanced(6, 2)
    assert_evicted(pool, before, 2)


def test_min_domains_of_three_are_met_when_the_third_zone_is_added(pool: Pool) -> None:
    for zone in ("zone-a", "zone-b", "zone-c"):
        pool.add_zone(zone)
    pool.deploy("web", 12, constraints=[constraint(ZONE, "web", minDomains=3)])
    pool.remove_zone("zone-c")
    scale(pool.sandbox, pool.name, "web", 8)  # deletes the pods without a node, which minDomains keeps Pending
    pool.wait_for(8)
    before = pool.uids()
    assert set(pool.counts().values()) == {4}
    pool.rebalance()
    pool.wait_until_blocked(8, "TooFewDomains")
    assert pool.held_pods() == {"TooFewDomains": 8}
    assert_evicted(pool, before, 0)
    pool.add_zone("zone-c")
    pool.wait_until_balanced(8, 2)
    assert sorted(pool.counts().values()) == [2, 3, 3]
    assert_evicted(pool, before, 2)


def test_an_expected_zone_without_nodes_is_reported(pool: Pool) -> None:
    pool.add_zone("zone-a")
    pool.deploy("web", 4, constraints=[constraint(ZONE, "web")])
    before = pool.uids()
    pool.rebalance(constraints={"expectedDomains": [{"topologyKey": ZONE, "values": ["zone-a", "zone-y"]}]})
    pool.wait_until_blocked(4, "DomainHasNoNode")
    assert pool.held_pods() == {"DomainHasNoNode": 4}
    assert pool.condition("Balanced")["status"] == "True"  # as the scheduler counts
    assert_evicted(pool, before, 0)
    pool.add_zone("zone-y")
    wait_until(lambda: pool.condition("Blocked")["status"] == "False", "the zone to be found")
    pool.wait_until_balanced(4, 2)
    assert set(pool.counts().values()) == {2}
    assert_evicted(pool, before, 2)


def test_only_the_two_pods_that_fit_are_moved(pool: Pool) -> None:
    pool.add_zone("zone-a")
    pool.deploy("web", 8, constraints=[constraint(ZONE, "web")])
    (small,) = pool.add_zone("zone-b", pods=2)
    before = pool.uids()
    pool.rebalance()
    pool.wait_until_blocked(8, "NoFeasibleNode", f"{small} has room for 2 pods and has 2 already")
    assert len(pool.status()["violations"]) == 1
    assert pool.held_pods() == {"NoFeasibleNode": 6}
    assert pool.counts() == {"zone-a": 6, "zone-b": 2}
    time.sleep(QUIET_SECONDS)
    assert_evicted(pool, before, 2)


def test_the_pods_with_the_lowest_priority_are_evicted(pool: Pool) -> None:
    for name, value in (("low", -10), ("middle", 10), ("high", 1000)):
        manifest = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        pool.sandbox.api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", manifest)
    pool.add_zone("zone-a")
    shared = constraint(ZONE, "", labelSelector={"matchLabels": {"tier": "front"}})
    for name, replicas in (("high", 4), ("low", 2), ("middle", 4)):
        pool.deploy(name, replicas, {"tier": "front"}, constraints=[shared], priorityClassName=name, priority=None)
    pool.add_zone("zone-b")
    restore(pool, 10, 5)
    assert set(pool.counts().values()) == {5}
    assert sorted(name.split("-")[0] for name in pool.evicted()) == ["low"] * 2 + ["middle"] * 3


def test_a_zone_that_node_affinity_excludes_gets_no_pod(pool: Pool) -> None:
    pool.add_zone("zone-a")
    elsewhere = {"key": ZONE, "operator": "NotIn", "values": ["zone-c"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
        }
    }
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")], affinity=affinity)
    pool.add_zone("zone-b")
    pool.add_zone("zone-c")
    restore(pool, 6, 3)
    assert pool.counts() == {"zone-a": 3, "zone-b": 3, "zone-c": 0}


def test_a_tainted_zone_is_ignored_with_node_taints_policy_honor(pool: Pool) -> None:
    pool.add_zone("zone-a")
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web", nodeTaintsPolicy="Honor")])
    pool.add_zone("zone-b")
    pool.add_zone("zone-c", taints=({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},))
    restore(pool, 6, 3)
    assert pool.counts() == {"zone-a": 3, "zone-b": 3, "zone-c": 0}


def test_a_pod_is_evicted_when_its_protection_ends_without_any_other_event(pool: Pool) -> None:
    pool.add_zone("zone-a")
    lasts = timedelta(seconds=25)
    protected = {"karpenter.sh/do-not-disrupt": f"{lasts.seconds}s"}
    pool.deploy("web", 4, constraints=[constraint(ZONE, "web")], annotations=protected)
    first_free_at = min(datetime.fromisoformat(each["status"]["startTime"]) for each in pool.pods()) + lasts
    pool.rebalance()
    before = pool.uids()
    pool.add_zone("zone-b")
    pool.wait_until_blocked(4, "ProtectedPod")
    assert pool.held_pods() == {"ProtectedPod": 4}
    assert_evicted(pool, before, 0)
    pool.wait_until_balanced(4, 2)
    assert_evicted(pool, before, 2)
    new = [each["metadata"] for each in pool.pods() if each["metadata"]["uid"] not in before]
    assert all(datetime.fromisoformat(each["creationTimestamp"]) >= first_free_at for each in new)


def test_pods_with_expendable_local_volumes_are_evicted(pool: Pool) -> None:
    pool.add_zone("zone-a")
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "logs", "hostPath": {"path": "/var/log"}}]
    may_go = {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "logs,scratch"}
    pool.deploy("web", 4, constraints=[constraint(ZONE, "web")], annotations=may_go, volumes=volumes)
    pool.add_zone("zone-b")
    restore(pool, 4, 2)


def test_the_status_counts_the_pods_that_budgets_and_volumes_hold(pool: Pool) -> None:
    pool.add_zone("zone-a")
    pool.guard("web", 0)
    pool.deploy("web", 4, constraints=[constraint(ZONE, "web")])
    volumes = [{"name": "scratch", "emptyDir": {}}]
    pool.deploy("cache", 3, constraints=[constraint(ZONE, "cache")], volumes=volumes)
    pool.add_zone("zone-b")
    before = pool.uids()
    pool.rebalance()
    pool.wait_until_blocked(7, "SeveralReasons")
    assert pool.held_pods() == {"HeldByBudget": 4, "LocalStorage": 3}
    assert_evicted(pool, before, 0)


def test_pods_without_a_required_budget_stay_until_one_is_created(pool: Pool) -> None:
    pool.add_zone("zone-a")
    for name in ("guarded", "bare"):
        pool.deploy(name, 4, constraints=[constraint(ZONE, name)])
    pool.guard("guarded", 2)
    pool.add_zone("zone-b")
    before = pool.uids()
    pool.rebalance(victims={"minAge": "0s", "budget": "Required"})
    pool.wait_until_blocked(8, "NoBudget", "no PodDisruptionBudget selects it")
    wait_until(lambda: len(pool.evicted()) == 2, "the pods with a budget to be evicted")
    time.sleep(QUIET_SECONDS)
    assert all(name.startswith("guarded-") for name in pool.evicted())
    assert pool.held_pods() == {"NoBudget": 4}
    (explained,) = pool.explain("deploy/bare")["constraints"]
    assert explained["reason"] == "NoBudget"
    assert_evicted(pool, before, 2)
    pool.guard("bare", 2)
    pool.wait_until_balanced(8, 4)
    assert_evicted(pool, before, 4)


def test_workloads_of_one_replica_are_evicted_only_if_the_policy_allows_it(pool: Pool) -> None:
    pool.add_zone("zone-a")
    together = [constraint(ZONE, "together")]
    for spread in together:
        spread["labelSelector"] = {"matchLabels": {"tier": "front"}}
    for name in ("one", "two", "three", "four"):
        pool.deploy(name, 1, labels={"tier": "front"}, constraints=together)
    pool.add_zone("zone-b")
    before = pool.uids()
    pool.rebalance()
    pool.wait_until_blocked(4, "TooFewReplicas")
    assert pool.held_pods() == {"TooFewReplicas": 4}
    (explained,) = pool.explain("deploy/one")["constraints"]
    assert explained["reason"] == "TooFewReplicas"
    assert_evicted(pool, before, 0)
    pool.rebalance(victims={"minAge": "0s", "minReplicas": 1})
    pool.wait_until_balanced(4, 2)
    assert_evicted(pool, before, 2)


def test_soft_constraints_are_restored_after_a_zone_returns(pool: Pool) -> None:
    for zone in ("zone-a", "zone-b", "zone-c"):
        pool.add_zone(zone, 2)
    soft = [constraint(key, "web", when_unsatisfiable="ScheduleAnyway") for key in (ZONE, HOSTNAME)]
    pool.deploy("web", 9, constraints=soft)
    pool.remove_zone("zone-c")
    pool.wait_for(9)
    pool.add_zone("zone-c", 2)
    counts, hosts = pool.counts(), pool.counts(HOSTNAME)
    needed = max(fewest_moves(counts), fewest_moves(hosts))
    pool.rebalance(constraints={"whenUnsatisfiable": ["ScheduleAnyway"]})
    pool.wait_until_balanced(9, needed)
    assert holds(pool.counts().values())
    assert holds(pool.counts(HOSTNAME).values())
    evicted = pool.evicted()
    assert needed <= len(evicted) <= 2 * needed  # the scheduler's score decides, Respread predicts it
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == evicted
    pool.wait_for(9)


@pytest.mark.parametrize(
    ("counts", "max_skew", "fewest"),
    [
        ([10, 0, 0, 0, 0], 1, 8),
        ([5, 4, 0], 1, 3),
        ([12, 0, 0, 0, 0, 0], 2, 9),
        ([3, 3, 0], 1, 2),
        ([4, 4, 0], 1, 2),
        ([10, 0], 1, 5),
        ([6, 0], 1, 3),
    ],
)
def test_the_expected_evictions_are_the_fewest(counts: list[int], max_skew: int, fewest: int) -> None:
    assert fewest_moves(dict(zip("abcdef", counts, strict=False)), max_skew) == fewest
