"""Minimum, skew and excess, as kube-scheduler computes them (`minMatchNum`), wherever they are asked for."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import inf, isinf
from typing import Final, NamedTuple

import pytest
from immutables import Map

from respread.api.policy import VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import workload_of
from respread.cluster.state import ClusterSnapshot
from respread.controller.choosing import begun_groups
from respread.controller.records.history import History
from respread.moves.entry import Counting, Outcome
from respread.moves.following import compared
from respread.planning.plan import BlockedGroup
from respread.planning.search.tally import Tally
from respread.prevention.ranks import evictions_needed
from respread.prevention.replica_set import ReplicaSetPods, layout_of, tallies_of
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.counts import LiveCounts
from respread.spread.group import SpreadGroup, domain_map
from respread.spread.index import SpreadIndex
from tests.eviction_moves import move
from tests.plans import plan_cluster
from tests.spreads import spread_of
from tests.unit.controller.observations import observation
from tests.unit.planning.blocked_plans import default_policy
from tests.worlds import NOW, cluster, constraint, node, pod, pods, spec, taint


class Case(NamedTuple):
    """The matching pods of each eligible domain, and what follows."""

    counts: tuple[int, ...]
    max_skew: int
    min_domains: int | None
    minimum: int
    skew: int
    excess: int
    evictions: float
    """The fewest that bring it within maxSkew; infinite if none can."""

    @property
    def snapshot(self) -> ClusterSnapshot:
        """A cluster with a node in each domain, and one with a pod that is in none."""
        of = spec(constraint(max_skew=self.max_skew, min_domains=self.min_domains))
        names = "abcdef"[: len(self.counts)]
        nodes = [*(node(f"{name}1", name) for name in names), node("x1")]
        return cluster(
            nodes, pods({f"{name}1": n for name, n in zip((*names, "x"), (*self.counts, 1), strict=True)}, of)
        )

    @property
    def group(self) -> SpreadGroup:
        (group,) = spread_of(self.snapshot).groups.values()
        return group


CASES: Final = [
    Case((3, 1, 1), 1, None, 1, 2, 1, 1),
    Case((3, 1, 0), 1, None, 0, 3, 2, 1),
    Case((3, 0, 0), 1, None, 0, 3, 2, 2),
    Case((2, 2), 1, None, 2, 0, 0, 0),
    Case((2, 2), 1, 2, 2, 0, 0, 0),
    Case((2, 2), 1, 3, 0, 2, 2, inf),
    Case((2, 2), 2, 3, 0, 2, 0, 0),
    Case((4, 1), 2, 2, 1, 3, 1, 1),
    Case((4, 1, 0), 2, None, 0, 4, 2, 1),
    Case((4, 1), 2, 3, 0, 4, 2, inf),
    Case((4, 0), 2, 3, 0, 4, 2, 2),
    Case((2, 1, 1), 1, 3, 1, 1, 0, 0),
    Case((2, 1, 1), 1, 4, 0, 2, 1, inf),
    Case((1, 1, 1), 1, 4, 0, 1, 0, 0),
    Case((2, 0, 1), 1, 4, 0, 2, 1, 1),
    Case((5,), 1, None, 5, 0, 0, 0),
    Case((5,), 1, 1, 5, 0, 0, 0),
    Case((5,), 1, 2, 0, 5, 4, inf),
    Case((0, 0), 1, None, 0, 0, 0, 0),
    Case((0, 0), 1, 3, 0, 0, 0, 0),
    Case((), 1, None, 0, 0, 0, 0),
    Case((), 1, 2, 0, 0, 0, 0),
]

POLICY: Final = default_policy(victims=VictimRules(min_replicas=1))
each_case = pytest.mark.parametrize("case", CASES, ids=str)


@each_case
def test_a_spread_group_has_them(case: Case) -> None:
    group = case.group
    assert (group.minimum, group.skew, group.excess) == (case.minimum, case.skew, case.excess)
    assert group.violated == (case.excess > 0)
    assert (f", minDomains {case.min_domains}, " in str(group.key)) == ((case.min_domains or 1) > 1)
    most = case.minimum + case.max_skew
    for name, count in zip("abcdef", case.counts, strict=False):
        assert group.too_full(f"{name}1") == (name if count > most else None)
    assert group.too_full("x1") is None


@each_case
def test_the_filter_admits_what_keeps_the_skew_within_max_skew(case: Case) -> None:
    """A node takes one more pod if the skew is within maxSkew then."""
    of = spec(constraint(max_skew=case.max_skew, min_domains=case.min_domains))
    prepared = Predictor(ClusterView(case.snapshot)).prepare(pod("new", "", of))
    (hard,) = prepared.hard_constraints
    assert hard.minimum == case.minimum
    expected = [
        f"{name}1" for name, n in zip("abcdef", case.counts, strict=False) if n + 1 - case.minimum <= case.max_skew
    ]
    assert prepared.feasible_nodes() == expected


@each_case
def test_the_search_has_them(case: Case) -> None:
    table = ClusterView(case.snapshot).table
    tally = Tally(case.group, domain_map(table, case.group), cure=True)
    assert (tally.minimum, tally.excess) == (case.minimum, case.excess)
    assert tally.fewest_moves() == case.evictions


@each_case
def test_the_effect_of_a_pod_more_or_less_is_known_beforehand(case: Case) -> None:
    counts = dict(zip("abcdef", case.counts, strict=False))
    for domain, by in product(counts, (1, -1)):
        live, then = LiveCounts(dict(counts), case.group.levels), {**counts, domain: counts[domain] + by}
        if then[domain] >= 0:
            effect = (live.effect_of_adding if by > 0 else live.effect_of_taking)(counts[domain])
            live.change(domain, by)
            expected = case.group.key.counts(then, len(then))
            assert (case.excess + effect, live.excess, live.levels) == (
                expected.excess,
                expected.excess,
                expected.levels,
            )


@each_case
def test_a_plan_restores_what_is_above_max_skew(case: Case) -> None:
    plan = plan_cluster(case.snapshot, [POLICY], now=NOW)
    assert bool(plan.moves or plan.blocked) == (case.excess > 0)
    assert [each.reason for each in plan.blocked] == [Reason.TOO_FEW_DOMAINS] * isinf(case.evictions)


@each_case
def test_pods_are_ranked_by_them(case: Case) -> None:
    ranked = [each for each in case.snapshot.pods.values() if each.node_name != "x1"]
    controller = OwnerReference("apps/v1", "ReplicaSet", "web", "uid-web")
    of_set = ReplicaSetPods(
        namespace="default",
        controller=controller,
        workload=workload_of(next(iter(case.snapshot.pods.values()))),
        pods=tuple(ranked),
        groups=(case.group,),
    )
    for to_rank in (ranked, ranked[:1], []):
        (tally,) = tallies_of(layout_of(of_set, to_rank, [each for each in ranked if each not in to_rank]))
        assert (tally.minimum, tally.excess) == (case.minimum, case.excess)


@each_case
def test_a_scale_down_is_judged_by_the_evictions_that_it_would_need(case: Case) -> None:
    assert evictions_needed([case.group]) == (case.excess if isinf(case.evictions) else case.evictions)


@each_case
def test_a_move_is_judged_by_them(case: Case) -> None:
    """It is worse if the group has more excess than with the pod in its old domain."""
    spread = spread_of(case.snapshot)
    (key,) = spread.groups

    def excess(counts: tuple[int, ...]) -> int:
        minimum = 0 if len(counts) < (case.min_domains or 1) else min(counts)
        return sum(max(0, count - minimum - case.max_skew) for count in counts)

    for source, target in product(range(len(case.counts)), repeat=2):
        if source == target or not case.counts[target]:
            continue
        before = list(case.counts)
        before[source] += 1
        before[target] -= 1
        made = move("old", groups=(key,), from_domains=("abcdef"[source],))
        outcome = compared(spread, made, pod("new", f"{'abcdef'[target]}1", spec()))
        worse = excess(case.counts) > excess(tuple(before)) or case.counts[target] > case.minimum + case.max_skew
        assert outcome is (Outcome.WORSE if worse else Outcome.IMPROVED)


@each_case
def test_a_begun_group_keeps_the_evictions_that_it_still_needs(case: Case) -> None:
    history = History(NOW.timestamp)
    history.count(Counting("default", ("default",), (case.group.key,)))
    blocked = BlockedGroup(group=case.group.key, policy="default", reason=Reason.IN_MOTION, message="")
    found = begun_groups([blocked], observation(case.snapshot, history=history))
    assert [each.evictions for each in found] == [0 if isinf(case.evictions) else case.evictions]


@pytest.mark.parametrize(
    ("by_node", "gone", "min_domains", "waits"),
    [
        ({"a1": 2, "a2": 4, "b1": 2, "c1": 0}, "a2", None, True),
        ({"a1": 2, "a2": 4, "b1": 2, "c1": 0}, "a2", 3, True),
        ({"a1": 2, "a2": 4, "b1": 2, "c1": 0}, "a2", 4, False),
        # Zone c is no domain any more once its node is gone.
        ({"a1": 3, "b1": 1, "c1": 1}, "c1", 2, True),
        ({"a1": 3, "b1": 1, "c1": 1}, "c1", 3, False),
    ],
)
def test_a_leaving_node_is_waited_for_if_what_is_left_holds(
    by_node: dict[str, int], gone: str, min_domains: int | None, waits: bool
) -> None:
    nodes = [node(name, name[0], taints=(taint("karpenter.sh/disrupted"),) if name == gone else ()) for name in by_node]
    snapshot = cluster(nodes, pods(by_node, spec(constraint(min_domains=min_domains))))
    plan = plan_cluster(snapshot, [POLICY], now=NOW)
    assert any(each.reason is Reason.NODE_LEAVING for each in plan.blocked) == waits
    assert bool(plan.moves) != waits


def test_a_group_follows_pods_of_which_some_have_another_template_and_some_are_new() -> None:
    before, after = spec(constraint()), spec(constraint(), requests=Map(cpu=200))
    index, nodes = SpreadIndex(), [node("a1", "a"), node("b1", "b")]
    for template, on in ((before, ["a1"] * 3), (after, ["a1"] * 3), (after, ["a1", "a1", "a1", "b1"])):
        spread = index.update(cluster(nodes, [pod(f"web-{number}", name, template) for number, name in enumerate(on)]))
        (group,) = spread.groups.values()
        assert [each.spec for each in group.carriers] == [template]
        assert group.counts == Counter(name[0] for name in on)
    for left in ([pod("web-0", "a1", after, phase="Succeeded")], [pod("web-0", "a1", before)], []):
        assert bool(index.update(cluster(nodes, left)).groups) == any(not each.finished for each in left)
