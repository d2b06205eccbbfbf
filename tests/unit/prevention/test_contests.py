"""Respread writes costs that another writer removes or replaces less and less often, and at once if pods change."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from immutables import Map

from respread.api.decoding import decode_policy
from respread.api.policy import Policy
from respread.api.record import Recorded, decode_record, encode_record
from respread.cluster.meta import POD_DELETION_COST
from respread.prevention.contests import (
    FORGOTTEN_SECONDS,
    HURRY_INTERVAL_SECONDS,
    WAIT,
    WAIT_IF_REPLACING,
    recalled_contests,
)
from respread.prevention.deletion_costs import Patch
from respread.prevention.prevention import SEEN_WITHIN_SECONDS, Answered, CostPlanner
from respread.prevention.ranks import HeldCost
from respread.timing import ClockReading
from tests.unit.prevention.test_decisions import BARE, Cluster, names, web
from tests.worlds import NOW

EVERYONE = {each.name for each in BARE}
DAY_SECONDS = 24 * 3600


def removed(cluster: Cluster, patches: list[Patch]) -> None:
    """Remove the costs that were just written, as another writer."""
    for patch in patches:
        cluster.put(msgspec.structs.replace(patch.pod, annotations=Map(), deletion_cost_is_ours=False))


def replaced(cluster: Cluster, cost: int) -> None:
    """Replace the costs of all pods, as another writer."""
    annotations = Map({POD_DELETION_COST: str(cost)})
    for pod in cluster.pods:
        mine = {"deletion_cost_is_ours": False, "deletion_cost_writer": "karpenter"}
        cluster.put(msgspec.structs.replace(pod, annotations=annotations, **mine))


def replaces() -> Policy:
    given = {"prevention": {"podDeletionCost": "Enabled", "costsOfOthers": "Replace"}}
    return decode_policy("ClusterRebalancePolicy", {"metadata": {"name": "prevents"}, "spec": given})


def rounds(cluster: Cluster, seconds: float, step: float = 5.0) -> int:
    """Return how often costs are written while each is removed as soon as it is visible."""
    found, until = 0, cluster.now + seconds
    while cluster.now < until:
        written = cluster.carry_out(after=step)
        found += bool(written)
        assert len(written) in {0, 3}
        removed(cluster, written)
    return found


def test_repeatedly_removed_costs_are_written_less_and_less_often() -> None:
    cluster = Cluster(*BARE)
    counts = [rounds(cluster, seconds) for seconds in (60, 120, 240, 480, 960, 1920)]
    assert sum(counts) <= 9
    assert max(counts[1:]) <= 2
    (contested,) = cluster.prevention.contests.repeated()["prevents"]
    assert contested.times >= 6
    assert contested.until.tzinfo is not None
    assert cluster.prevention.contests.take_lost() == {"prevents": 3 * contested.times}
    # Respread never stops completely.
    assert rounds(cluster, DAY_SECONDS, step=60) >= DAY_SECONDS / WAIT.longest_seconds / 2


def test_a_cost_that_is_removed_once_is_written_again_soon_without_a_report() -> None:
    cluster = Cluster(*BARE)
    written = cluster.carry_out()
    removed(cluster, written[:1])
    assert cluster.carry_out(after=1) == []
    assert names(cluster.carry_out(after=WAIT.first_seconds)) == {written[0].pod.name}
    assert cluster.prevention.contests.repeated() == {}


def test_costs_that_last_are_no_longer_contested() -> None:
    cluster = Cluster(*BARE)
    rounds(cluster, 100)
    assert names(cluster.carry_out(after=WAIT.longest_seconds)) == EVERYONE
    assert cluster.prevention.contests.repeated() != {}
    assert cluster.carry_out(after=FORGOTTEN_SECONDS) == []
    assert cluster.prevention.contests.repeated() == {}


def test_costs_are_written_at_once_when_pods_are_deleted_but_not_each_time() -> None:
    cluster = Cluster(*BARE, web("web-4", "a2"), web("web-5", "b2"))
    for _ in range(6):
        removed(cluster, cluster.carry_out(after=1000))
    assert cluster.taken(after=1) == []
    cluster.delete("web-5")
    written = cluster.carry_out(after=1)
    assert names(written) == {*EVERYONE, "web-4"}
    removed(cluster, written)
    assert cluster.taken(after=1) == []
    cluster.delete("web-4")
    assert cluster.taken(after=1) == []
    cluster.put(web("web-4", "a2"))
    cluster.look(after=HURRY_INTERVAL_SECONDS)
    cluster.delete("web-4")
    assert names(cluster.taken(after=1)) == EVERYONE


def test_costs_lost_before_pods_go_and_seen_lost_afterwards_are_written_at_once_too() -> None:
    cluster = Cluster(*BARE, web("web-4", "a2"), web("web-5", "b2"))
    for _ in range(6):
        removed(cluster, cluster.carry_out(after=1000))
    written = cluster.carry_out(after=1000)
    removed(cluster, [patch for patch in written if patch.pod.name == "web-4"])
    cluster.look(after=1)
    cluster.delete("web-5")
    cluster.look(after=1)
    removed(cluster, [patch for patch in written if patch.pod.name in EVERYONE])
    again = cluster.carry_out(after=1)
    assert names(again) == {*EVERYONE, "web-4"}
    removed(cluster, [patch for patch in again if patch.pod.name == "web-1"])
    assert cluster.taken(after=WAIT.first_seconds) == [], "it was lost after it was written again"


def test_new_pods_of_a_contested_workload_wait_too() -> None:
    cluster = Cluster(*BARE)
    for _ in range(3):
        removed(cluster, cluster.carry_out(after=1000))
    cluster.put(web("web-4", "a2"))
    assert cluster.taken(after=1) == []
    assert names(cluster.taken(after=1000)) == {*EVERYONE, "web-4"}


def test_costs_that_another_writer_replaces_are_kept_and_reported() -> None:
    cluster = Cluster(*BARE)
    for _ in range(2):
        cluster.carry_out(after=1000)
        replaced(cluster, 7)
        assert cluster.carry_out(after=1000) == []
        cluster.put(*BARE)
    (contested,) = cluster.prevention.contests.repeated()["prevents"]
    assert contested.writer == "karpenter"
    # Its name stays known when costs are only removed, after the wait and during it.
    written = cluster.carry_out(after=1000)
    for at in (0, 1):
        removed(cluster, written[at : at + 1])
        cluster.look(after=1)
        (contested,) = cluster.prevention.contests.repeated()["prevents"]
        assert (contested.writer, contested.times) == ("karpenter", 3)


def test_a_policy_may_let_respread_replace_them_about_once_a_minute() -> None:
    cluster = Cluster(*BARE, policies=[replaces()])
    cluster.carry_out()
    found, begun = 0, cluster.now
    while cluster.now < begun + 3600:
        replaced(cluster, 7)
        written = cluster.carry_out(after=5)
        assert all(patch.replacing for patch in written)
        found += len(written)
    assert 50 <= found / 3 <= 3600 / WAIT_IF_REPLACING.longest_seconds + 3


def test_a_cost_that_can_not_be_replaced_is_retried_after_a_while() -> None:
    cluster = Cluster(*BARE, policies=[replaces()])
    replaced(cluster, 0)
    for patch in cluster.taken():
        cluster.prevention.answered(patch, Answered(HeldCost(0, ours=False)), cluster.now)
    cluster.put(*(msgspec.structs.replace(pod, annotations=Map({POD_DELETION_COST: "5"})) for pod in cluster.pods))
    assert cluster.taken(after=SEEN_WITHIN_SECONDS - 1) == []


def test_costs_removed_before_the_watch_showed_them_count_once_written_again() -> None:
    cluster = Cluster(*BARE)
    for _ in range(2):
        for patch in cluster.taken(after=SEEN_WITHIN_SECONDS + 1):
            cost = HeldCost(patch.cost or 0, ours=True)
            cluster.prevention.answered(patch, Answered(cost, written=True), cluster.now)
    cluster.look()
    assert cluster.prevention.contests.take_lost() == {"prevents": 3}


def test_a_new_leader_continues_the_waits_of_the_last_one() -> None:
    cluster = Cluster(*BARE)
    for _ in range(4):
        removed(cluster, cluster.carry_out(after=1000))
        cluster.look(after=1)
    remembered = cluster.prevention.contests.repeated()
    (contested,) = remembered["prevents"]
    assert (contested.kind, contested.times) == ("ReplicaSet", 4)

    new = Cluster(*BARE)
    new.now = cluster.now
    moment = ClockReading(new.now, (NOW + timedelta(seconds=new.now)).timestamp())
    record = decode_record(encode_record(Recorded(contested_costs=remembered["prevents"])))
    new.prevention = CostPlanner(new.now, recalled_contests([record], moment))
    assert new.taken(after=1) == []
    assert [each.times for each in new.prevention.contests.repeated()["prevents"]] == [4]
    assert names(new.carry_out(after=8 * WAIT.first_seconds)) == EVERYONE
    # A time further away than any wait means that a clock was set.
    new = Cluster(*BARE)
    early = ClockReading(new.now, moment.time - WAIT.longest_seconds)
    new.prevention = CostPlanner(new.now, recalled_contests([record], early))
    assert names(new.taken(after=1)) == EVERYONE
