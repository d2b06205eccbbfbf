"""Limits decide how many moves are made at once, and the other moves are held with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from respread.api.fields import MAX_COUNT, LabelSelector
from respread.api.policy import ClusterPolicySpec, Limits, Policy, PolicySpec
from respread.api.reasons import Held, Reason
from respread.api.record import MAX_MOVES_IN_FLIGHT, MAX_RECENT_EVICTIONS
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import Namespace, Workload
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.limiter import GroupPace, Limiter
from respread.eviction.pacing import Pace, Paced
from respread.eviction.standing import FEW, Standings, Trust
from respread.eviction.tallies import HOUR_SECONDS, EvictionHistory, Needed
from respread.planning.plan import Move
from tests.eviction_moves import SPEC, group, move
from tests.worlds import NOW, cluster, pod

WIDE = Limits(in_flight=1000, in_flight_per_namespace=1000, in_flight_per_node=1000, in_flight_per_workload=1000)


def limits(**fields: Any) -> Limits:
    return Limits(**{**{name: getattr(WIDE, name) for name in WIDE.__struct_fields__}, **fields})


def cluster_policy(of: Limits, name: str = "default", **spec: Any) -> Policy:
    return Policy(kind="ClusterRebalancePolicy", object_name=name, spec=ClusterPolicySpec(limits=of, **spec))


def victim(number: int, *, app: str = "", on: str = "", namespace: str = "default", **fields: Any) -> Move:
    """Return a move of a pod with its own workload, node and group, unless stated otherwise."""
    app, on = app or f"app-{number}", on or f"node-{number}"
    controller = OwnerReference("apps/v1", "ReplicaSet", app, f"uid-{app}")
    evicted = pod(f"{app}-{number}", on, SPEC, labels=Map(app=app), namespace=namespace, controller=controller)
    return move(evicted, **fields)


def world(*moves: Move) -> ClusterSnapshot:
    return cluster([], [each.pod for each in moves])


def pace(moves: Sequence[Move], *policies: Policy, now: float = 10_000, **fields: Any) -> Paced:
    in_flight: Sequence[Move] = fields.get("in_flight", ())
    snapshot = fields.pop("snapshot", None) or world(*moves, *in_flight)
    return Pace(snapshot=snapshot, limiters=tuple(map(Limiter.of, policies)), now=now, **fields).of(moves)


def numbers(moves: Sequence[Move]) -> list[int]:
    return [int(each.pod.name.rpartition("-")[2]) for each in moves]


@pytest.mark.parametrize(
    ("of", "fields", "made", "message"),
    [
        (limits(in_flight=2), {}, [1, 2], "limits.inFlight of policy default is 2, and 2 evictions are in flight"),
        (
            limits(in_flight_per_namespace=1),
            {},
            [1],
            "limits.inFlightPerNamespace (default) of policy default is 1, and 1 eviction is in flight",
        ),
        (
            limits(in_flight_per_node=3),
            {"on": "node-x"},
            [1, 2, 3],
            "limits.inFlightPerNode (node-x) of policy default is 3, and 3 evictions are in flight",
        ),
        (
            limits(in_flight_per_workload=1),
            {"app": "web"},
            [1],
            "limits.inFlightPerWorkload (ReplicaSet/web) of policy default is 1, and 1 eviction is in flight",
        ),
    ],
)
def test_each_limit_holds_the_surplus_moves(of: Limits, fields: dict[str, Any], made: list[int], message: str) -> None:
    paced = pace([victim(number, **fields) for number in range(1, 5)], cluster_policy(of))
    assert numbers(paced.now) == made
    assert [each.held for each in paced.held] == [Held(Reason.LIMIT_REACHED, message)] * (4 - len(made))


@pytest.mark.parametrize(("percent", "pods", "made"), [("10%", 30, 3), ("10%", 29, 2), ("10%", 5, 1), ("100%", 4, 4)])
def test_the_workload_limit_can_be_a_percentage(percent: str, pods: int, made: int) -> None:
    moves = [victim(number, app="web") for number in range(pods)]
    assert len(pace(moves, cluster_policy(limits(in_flight_per_workload=percent))).now) == made


def test_terminating_pods_do_not_count_for_a_percentage() -> None:
    moves = [victim(number, app="web") for number in range(30)]
    pods = [each.pod for each in moves]
    going = msgspec.structs.replace(pods[0], deletion_timestamp=NOW)
    snapshot = cluster([], [going, *pods[1:]])
    of_29 = pace(moves[1:], cluster_policy(limits(in_flight_per_workload="10%")), snapshot=snapshot)
    assert len(of_29.now) == 2


def test_moves_in_flight_count() -> None:
    policy = cluster_policy(limits(in_flight=3, in_flight_per_node=1))
    in_flight = (victim(1, on="node-x"), victim(2))
    paced = pace([victim(3, on="node-x"), victim(4), victim(5)], policy, in_flight=in_flight)
    assert numbers(paced.now) == [4]
    assert ["inFlightPerNode (node-x)" in each.held.message for each in paced.held] == [True, False]


def test_a_held_move_does_not_hold_others() -> None:
    policy = cluster_policy(limits(in_flight_per_node=1))
    paced = pace([victim(1, on="node-x"), victim(2, on="node-x"), victim(3)], policy)
    assert numbers(paced.now) == [1, 3]


def test_places_go_first_to_what_has_most_steps_left() -> None:
    """Its workload has only so many at once, so it would be the last one to be restored."""
    short = [victim(number, app="web", component=1, step=number) for number in (1, 2)]
    long = [victim(number, app="api", component=2, step=number) for number in (3, 4, 5, 6)]
    policy = cluster_policy(limits(in_flight=1, in_flight_per_workload=1))
    assert numbers(pace([*short, *long], policy).now) == [3]
    assert numbers(pace([*short, *long], cluster_policy(limits(in_flight=2))).now) == [3, 4]
    assert numbers(pace([*short, *long], cluster_policy(limits(in_flight=3))).now) == [1, 3, 4], "then they take turns"


def test_the_default_limits_apply() -> None:
    paced = pace([victim(number) for number in range(1, 21)], cluster_policy(Limits()))
    assert len(paced.now) == 10  # inFlight
    of_a_node = [victim(number, on="a") for number in (1, 2, 3)]
    assert numbers(pace(of_a_node, cluster_policy(Limits())).now) == [1, 2]


def test_an_ordered_stateful_set_has_one_pod_in_flight_whatever_limits_allow() -> None:
    """Also across policies, and while the replacement starts: if it is lost, it waits for those of lower ordinals."""
    controller = OwnerReference("apps/v1", "StatefulSet", "db", "uid-db")
    policies = cluster_policy(WIDE), cluster_policy(WIDE, "other")
    pods = [pod(f"db-{n}", f"node-{n}", SPEC, controller=controller) for n in range(4)]
    moves = [move(each, policy="default" if n % 2 else "other") for n, each in enumerate(pods)]
    for is_ordered, made in ((True, [0]), (False, [0, 1, 2, 3])):
        state = Workload(namespace="default", name="db", uid="uid-db", is_ordered=is_ordered)
        snapshot = msgspec.structs.replace(cluster([], pods), stateful_sets=Map({state.key: state}))
        assert numbers(pace(moves, *policies, snapshot=snapshot).now) == made
        beside = pace(moves[1:], *policies, snapshot=snapshot, in_flight=moves[:1])
        assert numbers(beside.now) == made[1:]
        assert all("one is moved at a time" in each.held.message for each in beside.held)
        dry = Held(Reason.DRY_RUN, "it only plans")
        closed = pace(moves[1:2], *policies, snapshot=snapshot, in_flight=moves[:1], closed={"default": dry})
        assert [each.held for each in closed.held] == [dry]


class TestScopeOfLimits:
    """A policy limits its own evictions, and a cluster policy also those of pods that it selects."""

    def test_a_namespaced_policy_limits_only_its_own_moves(self) -> None:
        own = Policy(
            kind="RebalancePolicy", namespace="shop", object_name="own", spec=PolicySpec(limits=limits(in_flight=1))
        )
        moves = [victim(number, namespace="shop", policy="shop/own") for number in (1, 2)]
        others = [victim(number, namespace="blog") for number in (3, 4)]
        paced = pace([*moves, *others], own, cluster_policy(WIDE))
        assert numbers(paced.now) == [1, 3, 4]

    def test_the_limits_of_a_cluster_policy_apply_in_total(self) -> None:
        own = Policy(kind="RebalancePolicy", namespace="shop", object_name="own", spec=PolicySpec(limits=WIDE))
        moves = [
            victim(1, namespace="shop", policy="shop/own"),
            *(victim(number, namespace="blog") for number in (2, 3)),
        ]
        paced = pace(moves, own, cluster_policy(limits(in_flight=2)))
        assert numbers(paced.now) == [1, 2]
        assert "of policy default is 2" in paced.held[0].held.message

    def test_a_cluster_policy_in_dry_run_limits_the_moves_of_others_too(self) -> None:
        """Switching a policy to DryRun must never let others evict more."""
        moves = [victim(number, policy="default/own") for number in range(1, 4)]
        tried = cluster_policy(limits(per_hour=2), mode="DryRun")
        own = Policy(kind="RebalancePolicy", namespace="default", object_name="own", spec=PolicySpec(limits=limits()))
        paced = pace(moves, tried, own, closed={"default": Held(Reason.DRY_RUN, "it only plans")})
        assert numbers(paced.now) == [1, 2]

    def test_a_cluster_policy_does_not_limit_pods_that_it_does_not_select(self) -> None:
        database = cluster_policy(
            limits(in_flight=1), "databases", pod_selector=LabelSelector(match_labels=Map(app="database"))
        )
        moves = [victim(1, app="database", policy="databases"), victim(2), victim(3), victim(4, app="database")]
        paced = pace(moves, database, cluster_policy(WIDE), standings=Standings())
        assert numbers(paced.now) == [1, 2, 3]
        assert numbers(pace(moves[:1], database, cluster_policy(WIDE), in_flight=(victim(5),)).now) == [1]
        assert not pace(moves[:1], database, cluster_policy(WIDE), in_flight=(victim(5, app="database"),)).now

    def test_namespaces_of_a_cluster_policy_are_selected_by_label_and_name(self) -> None:
        team = cluster_policy(limits(in_flight=1), "team", namespace_selector=LabelSelector(match_labels=Map(team="a")))
        moves = [victim(1, namespace="a1"), victim(2, namespace="a1"), victim(3, namespace="kube-system"), victim(4)]
        namespaces = [Namespace(name=name, labels=Map(team=name[:1])) for name in ("a1", "default", "kube-system")]
        snapshot = cluster([], [each.pod for each in moves], namespaces=namespaces)
        everywhere = cluster_policy(limits(in_flight=2), "most")  # by default without kube-system
        paced = pace(moves, team, everywhere, snapshot=snapshot)
        assert numbers(paced.now) == [1, 3, 4]


class TestPerHour:
    """`perHour` counts evictions within any hour, whether or not they are still in flight."""

    policy = cluster_policy(limits(per_hour=3))

    def test_moves_of_the_same_wave_count(self) -> None:
        paced = pace([victim(number) for number in range(1, 6)], self.policy)
        assert numbers(paced.now) == [1, 2, 3]
        assert paced.held[0].held.message == (
            "limits.perHour of policy default is 3, and 3 evictions were made within the last hour"
        )
        paced = pace([victim(1), victim(2)], cluster_policy(limits(per_hour=1)))
        assert paced.held[0].held.message.endswith("is 1, and 1 eviction was made within the last hour")

    def test_old_evictions_are_forgotten_after_an_hour(self) -> None:
        history = EvictionHistory().with_evictions(["default"], 1000).with_evictions(["default", "other"], 2000)
        assert len(pace([victim(1), victim(2)], self.policy, history=history, now=4599).now) == 1
        assert len(pace([victim(1), victim(2)], self.policy, history=history, now=4600).now) == 2
        assert history.in_last_hour("other", 4600) == ((2000, 1),)
        assert history.with_evictions(["default"], 9000).minutes["default"] == ((9000, 1),)

    def test_evictions_of_a_minute_are_counted_with_the_time_of_the_last(self) -> None:
        history = EvictionHistory()
        for second in range(120):
            history = history.with_evictions(["default"], 6001 + second)
        assert history.minutes["default"] == ((6060, 60), (6120, 60))
        assert history.count_in_last_hour("default", 6060 + HOUR_SECONDS - 1) == 120
        assert history.count_in_last_hour("default", 6060 + HOUR_SECONDS) == 60

    def test_a_clock_set_back_repeatedly_forgets_nothing_and_uses_no_more_memory(self) -> None:
        history = EvictionHistory()
        for minute in range(200):
            history = history.with_evictions(["default"], 60_000 - 60 * minute)
        assert len(history.minutes["default"]) == MAX_RECENT_EVICTIONS
        assert history.count_in_last_hour("default", 0) == 200

    def test_the_count_of_evictions_is_capped_at_what_a_status_can_hold(self) -> None:
        history = EvictionHistory().with_evictions(["default"], 1000, MAX_COUNT).with_evictions(["default"], 1001)
        assert history.minutes["default"] == ((1001, MAX_COUNT),)

    def test_groups_that_need_few_evictions_are_finished_before_others_are_begun(self) -> None:
        large = [victim(number, component=1, groups=(group("large"),), wave=number - 1) for number in (1, 2, 3)]
        small = [victim(number, component=2, groups=(group("small"),), wave=number - 4) for number in (4, 5)]
        moves = sorted([*large, *small], key=lambda each: each.wave)
        for per_hour in (3, 4):  # What the small group leaves begins the large group.
            assert numbers(pace(moves, cluster_policy(limits(per_hour=per_hour))).now) == [1, 4]
        assert numbers(pace(moves, cluster_policy(limits(per_hour=5, in_flight=1))).now) == [1], "it allows all"
        paced = pace(moves, cluster_policy(limits(per_hour=2)))
        assert numbers(paced.now) == [4]
        assert paced.held[0].held.message == (
            "limits.perHour of policy default is 2, and what it still allows within this hour goes to spread groups "
            "that can be restored with it"
        )
        made = EvictionHistory().with_evictions(["default"], 9_999)
        assert numbers(pace(moves, cluster_policy(limits(per_hour=3)), history=made).now) == [4]
        paced = pace(moves, cluster_policy(limits(per_hour=2)), unrestored={group("small")})
        assert numbers(paced.now) == [1], "neither can be restored, so the order of the plan decides"

    def test_evictions_are_kept_for_groups_that_are_begun(self) -> None:
        moves = [victim(1), victim(2)]
        kept = [Needed("default", "elsewhere", (Map(),), 2)]
        assert numbers(pace(moves, cluster_policy(limits(per_hour=3)), begun=lambda: kept).now) == [1]
        assert pace(moves, cluster_policy(limits(per_hour=2)), begun=lambda: kept).now == ()
        others = [each._replace(policy="another") for each in kept]
        assert numbers(pace(moves, cluster_policy(limits(per_hour=2)), begun=lambda: others).now) == [1, 2]

    def test_a_group_that_is_begun_gets_all_that_is_left(self) -> None:
        moves = [victim(number, component=1, step=number, groups=(group("large"),)) for number in (1, 2, 3)]
        assert numbers(pace(moves, cluster_policy(limits(per_hour=2))).now) == [1, 2]

    def test_the_group_with_evictions_in_the_last_hour_is_first_of_two_that_need_as_many(self) -> None:
        groups = [(group(name), group("of both")) for name in "ab"]
        moves = [victim(number, component=number, groups=groups[number]) for number in range(2)]
        pace_of_b = {group("a"): GroupPace(3, 0), group("b"): GroupPace(3, 1)}.get
        assert numbers(pace(moves, cluster_policy(limits(per_hour=1)), groups=pace_of_b).now) == [1]

    def test_a_group_with_a_move_in_flight_is_finished_first(self) -> None:
        two_groups, in_flight = (group("large"), group("other")), (victim(9, groups=(group("large"),)),)
        large = [victim(number, component=1, step=number, groups=two_groups) for number in (1, 2, 3)]
        policy = cluster_policy(limits(per_hour=3))
        assert numbers(pace([*large, victim(4)], policy).now) == [1, 2, 4]
        assert numbers(pace([*large, victim(4)], policy, in_flight=in_flight).now) == [1, 2, 3]
        moves = [*large[:2], *(victim(number, groups=(group(str(number)),)) for number in (4, 5, 6))]
        assert numbers(pace(moves, cluster_policy(limits(per_hour=4))).now) == [1, 2, 4, 5]
        few = cluster_policy(limits(per_hour=4, in_flight=3))
        assert numbers(pace(moves, few, in_flight=in_flight).now) == [1, 2]

    def test_groups_that_take_the_fewest_evictions_each_are_finished_first(self) -> None:
        one = [victim(number, component=1, step=number, groups=(group("a"),)) for number in (1, 2)]
        three = [victim(number, component=2, step=number, groups=tuple(map(group, "bcd"))) for number in range(3, 8)]
        assert numbers(pace([*one, *three], cluster_policy(limits(per_hour=5))).now) == [3, 4, 5, 6, 7]
        pair = [victim(number, component=1, step=number, groups=(group(str(number)),)) for number in (1, 2)]
        assert numbers(pace([*pair, victim(3)], cluster_policy(limits(per_hour=1))).now) == [1], "of one of its groups"

    def test_groups_of_important_policies_are_finished_first(self) -> None:
        dear = [victim(number, policy="own", component=1, groups=(group("a"),), wave=number - 1) for number in (1, 2)]
        moves = [dear[0], victim(3), dear[1]]
        shared, own = cluster_policy(limits(per_hour=2)), cluster_policy(WIDE, "own")
        assert numbers(pace(moves, shared, own, ranks={"own": 0, "default": 1}).now) == [1]
        paced = pace(moves, shared, own, ranks={"own": 0, "default": 1}, unrestored={group("a")})
        assert numbers(paced.now) == [1, 3], "what can be restored goes before what can't"
        assert numbers(pace(moves, shared, own, ranks={"own": 1, "default": 0}).now) == [1, 3]
        together = [victim(n, policy=of, component=1, groups=(group("a"),)) for n, of in ((1, "own"), (2, "default"))]
        alone = victim(3, groups=(group("b"),))
        assert numbers(pace([*together, alone], shared, own, ranks={"default": 1}).now) == [1, 2]

    def test_without_per_hour_there_is_no_limit(self) -> None:
        history = EvictionHistory().with_evictions(["default"], 9_000, 1000)
        assert len(pace([victim(1)], cluster_policy(limits()), history=history).now) == 1

    def test_a_limit_of_zero_holds_every_move(self) -> None:
        paced = pace([victim(1)], cluster_policy(limits(per_hour=0)))
        assert paced.now == ()
        (held,) = paced.held
        assert held.held == Held(Reason.LIMIT_REACHED, "limits.perHour of policy default is 0: none is made")


class TestPerHourPerGroup:
    """`perHourPerGroup` counts evictions of one group within any hour, whatever their outcome."""

    shared = group("web")

    def paced(self, of: Limits, moves: Sequence[Move], pods: int, made: int) -> Paced:
        return pace(moves, cluster_policy(of), groups=lambda key: GroupPace(pods, made) if key == self.shared else None)

    @pytest.mark.parametrize(
        ("limit", "pods", "made", "now"),
        [(3, 100, 0, [1, 2, 3]), (3, 100, 2, [1]), (3, 2, 3, []), ("100%", 12, 10, [1, 2]), ("50%", 12, 8, [1, 2])],
    )
    def test_moves_of_the_same_wave_count(self, limit: int | str, pods: int, made: int, now: list[int]) -> None:
        moves = [victim(number, groups=(self.shared,)) for number in range(1, 5)]
        paced = self.paced(limits(per_hour_per_group=limit), moves, pods, made)
        assert numbers(paced.now) == now
        assert {each.held.reason for each in paced.held} == {Reason.LIMIT_REACHED}

    @pytest.mark.parametrize(("made", "now"), [(1, [1, 2]), (2, [])])
    def test_a_step_of_two_needs_two_evictions(self, made: int, now: list[int]) -> None:
        step = [victim(number, groups=(self.shared,), component=1) for number in (1, 2)]
        assert numbers(self.paced(limits(per_hour_per_group=3), step, 100, made).now) == now

    def test_a_full_group_limit_is_reported_and_holds_no_other_group(self) -> None:
        moves = [victim(1, groups=(self.shared,)), victim(2)]
        paced = self.paced(limits(per_hour_per_group=7), moves, 3, 7)
        assert numbers(paced.now) == [2]
        assert paced.held[0].held.message == (
            "limits.perHourPerGroup of policy default is 7 for this spread group, and 7 evictions were made for it "
            "within the last hour; something may undo them, such as an autoscaler that scales up and down, node "
            "consolidation or another descheduler"
        )
        paced = self.paced(limits(per_hour_per_group=1), [victim(1, groups=(self.shared,))], 3, 1)
        assert "is 1 for this spread group, and 1 eviction was made for it" in paced.held[0].held.message

    @pytest.mark.parametrize("made", [0, 1000])
    def test_a_limit_of_zero_holds_every_move(self, made: int) -> None:
        moves = [victim(number, groups=(self.shared,)) for number in range(1, 5)]
        paced = self.paced(limits(per_hour_per_group=0), moves, 3, made)
        assert numbers(paced.now) == []
        assert {each.held.message for each in paced.held} == {
            "limits.perHourPerGroup of policy default is 0: none is made"
        }

    def test_the_group_limit_of_a_cluster_policy_applies_in_total(self) -> None:
        of = limits(per_hour_per_group=2)
        moves = [victim(1, policy="default/own", groups=(self.shared,))]
        everything = cluster_policy(of, namespace_selector=LabelSelector())
        snapshot = cluster([], [each.pod for each in moves], namespaces=[Namespace(name="default")])
        paced = pace(moves, everything, snapshot=snapshot, groups=lambda _: GroupPace(3, 2))
        assert numbers(paced.now) == []


def test_a_policy_on_trial_makes_a_single_step() -> None:
    tried = Held(Reason.PAUSED, "one pod is tried")
    moves = [victim(1), victim(2), victim(3, policy="shop/own")]
    paced = pace(moves, cluster_policy(WIDE), single={"default": tried})
    assert numbers(paced.now) == [1, 3]
    assert [each.held for each in paced.held] == [tried]


def test_policies_with_closed_windows_hold_their_moves_with_the_reason() -> None:
    closed = Held(Reason.WINDOW_CLOSED, "until Monday")
    paced = pace([victim(1), victim(2, policy="shop/own")], cluster_policy(WIDE), closed={"shop/own": closed})
    assert numbers(paced.now) == [1]
    assert paced.held[0].held is closed


def test_no_more_moves_of_a_namespace_are_made_than_can_be_sent_in_time() -> None:
    paced = pace([victim(number) for number in (1, 2, 3)], cluster_policy(WIDE), room=lambda _: 2)
    assert numbers(paced.now) == [1, 2]
    assert "until evictions that were chosen before it are sent" in paced.held[0].held.message


def test_later_waves_wait_and_groups_with_moves_in_flight_do_not() -> None:
    moves = [victim(1, wave=1), victim(2, groups=(group("web"),)), victim(3, groups=(group("web"),)), victim(4)]
    paced = pace(moves, cluster_policy(WIDE), in_flight=(victim(5, groups=(group("web"), group("api"))),))
    assert numbers(paced.now) == [2, 3, 4]
    assert {each.held.reason for each in paced.held} == {Reason.IN_MOTION}


class TestTrust:
    """A workload has a few moves in flight, and more with each of its replacements that becomes Ready."""

    @staticmethod
    def made(moves: Sequence[Move], in_flight: int, *ready: bool, limit: int = 1000) -> int:
        trust = Trust()
        for each in ready:
            trust = trust.with_end(moves[0].workload, 10_000.0, ready=each)
        going = tuple(victim(100 + number, app="web") for number in range(in_flight))
        policy = cluster_policy(limits(in_flight_per_workload=limit))
        return len(pace(moves, policy, in_flight=going, trust=trust).now)

    @pytest.mark.parametrize(
        ("ready", "in_flight", "limit", "made"),
        [
            ((), 0, 1000, FEW),
            ((), FEW - 1, 1000, 1),
            ((), FEW, 1000, 0),
            ((), 0, FEW - 1, FEW - 1),
            ((True,), FEW, 1000, FEW),
            ((False,), 0, 1000, 1),
            ((False,), 1, 1000, 0),
        ],
    )
    def test_the_outcomes_of_the_last_replacements_bound_how_many_moves_are_made(
        self, ready: tuple[bool, ...], in_flight: int, limit: int, made: int
    ) -> None:
        moves = [victim(number, app="web") for number in range(3 * FEW)]
        assert self.made(moves, in_flight, *ready, limit=limit) == made
        others = [victim(number) for number in range(3 * FEW)]
        assert len(pace(others, cluster_policy(WIDE), trust=Trust()).now) == 3 * FEW

    @pytest.mark.parametrize("in_flight", [0, 1])
    def test_a_step_of_two_is_tried_alone(self, in_flight: int) -> None:
        step = [victim(number, app="web", component=9) for number in (1, 2)]
        assert self.made(step, in_flight, False) == (0 if in_flight else 2)


class TestUnreadyPods:
    """Unready pods count for a workload's limit like evictions in flight, each of them once."""

    @staticmethod
    def paced(of: Limits, moves: Sequence[Move], *others: Pod, **fields: Any) -> Paced:
        in_flight = fields.get("in_flight", ())
        snapshot = cluster([], [*(each.pod for each in (*moves, *in_flight)), *others])
        return pace(moves, cluster_policy(of), snapshot=snapshot, **fields)

    @staticmethod
    def broken(number: int, app: str = "web") -> Pod:
        return msgspec.structs.replace(victim(number, app=app).pod, ready=False)

    def test_a_workload_with_an_unready_pod_is_held_with_the_reason(self) -> None:
        moves = [victim(1, app="web"), victim(2, app="api")]
        paced = self.paced(limits(in_flight_per_workload=1), moves, self.broken(7))
        assert numbers(paced.now) == [2]
        assert [each.held for each in paced.held] == [
            Held(
                Reason.PODS_NOT_READY,
                "limits.inFlightPerWorkload (ReplicaSet/web) of policy default is 1, and 1 of its pods is not Ready, "
                "web-7: a pod that is not Ready counts like an eviction in flight",
            )
        ]

    def test_unready_pods_reduce_a_higher_limit(self) -> None:
        moves = [victim(number, app="web") for number in range(4)]
        paced = self.paced(limits(in_flight_per_workload=4), moves, self.broken(7), self.broken(8), trust=Trust())
        assert numbers(paced.now) == [0, 1]
        assert "4, and 2 of its pods are not Ready, web-7 for one" in paced.held[0].held.message

    def test_after_a_failure_nothing_is_evicted_while_a_pod_is_not_ready(self) -> None:
        moves = [victim(1, app="web"), victim(2, app="api")]
        trust = Trust().with_end(moves[0].workload, 10_000.0, ready=False)
        paced = self.paced(limits(in_flight_per_workload=100), moves, self.broken(7), trust=trust)
        assert numbers(paced.now) == [2]
        (waiting,) = paced.held
        assert waiting.held.reason is Reason.PODS_NOT_READY
        assert "web-7 is not Ready: no other pod is tried before it is" in waiting.held.message
        assert numbers(self.paced(limits(in_flight_per_workload=100), moves, trust=trust).now) == [1, 2]

    @pytest.mark.parametrize(("kind", "made"), [("StatefulSet", [3]), ("ReplicaSet", [])])
    def test_a_percentage_counts_pods_that_a_stateful_set_creates_again_when_they_are_gone(
        self, kind: str, made: list[int]
    ) -> None:
        owner = OwnerReference("apps/v1", kind, "web", "uid-web")
        pods = [msgspec.structs.replace(victim(number, app="web").pod, controller=owner) for number in range(8)]
        gone = [msgspec.structs.replace(pod, deletion_timestamp=NOW) for pod in pods[:3]]
        first, *going = (move(pod) for pod in (pods[3], *gone))
        of = limits(in_flight_per_workload="50%")
        assert numbers(self.paced(of, [first], *pods[4:], in_flight=tuple(going)).now) == made
        paced = self.paced(of, list(map(move, pods[3:])), *gone[1:], in_flight=(going[0],))
        assert len(paced.now) == len(made) + 1, "of those that others delete it may create none again"

    def test_an_unready_pod_does_not_block_its_own_eviction(self) -> None:
        first, second = (msgspec.structs.replace(victim(each, app="web"), pod=self.broken(each)) for each in (1, 2))
        assert numbers(self.paced(limits(in_flight_per_workload=1), [first]).now) == [1]
        assert numbers(self.paced(limits(in_flight_per_workload=1), [first, second]).now) == []
        assert numbers(self.paced(limits(in_flight_per_workload=2), [first, second]).now) == [1, 2]

    def test_a_move_in_flight_and_its_replacement_count_once(self) -> None:
        going = victim(5, app="web")
        replacement = self.broken(7)
        fields: dict[str, Any] = {"in_flight": (going,), "replacements": frozenset({replacement.uid})}
        of = limits(in_flight_per_workload=2)
        assert numbers(self.paced(of, [victim(1, app="web")], replacement, **fields).now) == [1]
        assert numbers(self.paced(of, [victim(1, app="web")], replacement, self.broken(8), **fields).now) == []

    def test_terminating_and_finished_pods_do_not_count(self) -> None:
        gone = msgspec.structs.replace(self.broken(7), deletion_timestamp=NOW)
        failed = msgspec.structs.replace(self.broken(8), phase="Failed")
        of = limits(in_flight_per_workload=1)
        assert numbers(self.paced(of, [victim(1, app="web")], gone, failed).now) == [1]


class TestSteps:
    """Moves of one step are made together or not at all."""

    def test_a_step_waits_as_a_whole_if_a_limit_has_no_room(self) -> None:
        policy = cluster_policy(limits(in_flight=3))
        step = [victim(2, component=9), victim(3, component=9)]
        paced = pace([*step, victim(4)], policy, in_flight=(victim(0), victim(1)))
        assert numbers(paced.now) == [4]
        assert {each.held.message for each in paced.held} == {
            "limits.inFlight of policy default is 3, and 2 evictions are in flight; 2 more have to be made together"
        }
        assert numbers(pace([*step, victim(4)], policy, in_flight=(victim(0),)).now) == [2, 3]

    @pytest.mark.parametrize(
        ("of", "fields", "field"),
        [
            (limits(in_flight=1), {}, "inFlight"),
            (limits(in_flight_per_namespace=1), {}, "inFlightPerNamespace (default)"),
            (limits(in_flight_per_node=1), {"on": "node-x"}, "inFlightPerNode (node-x)"),
            (limits(in_flight_per_workload=1), {"app": "web"}, "inFlightPerWorkload (ReplicaSet/web)"),
            (limits(in_flight_per_workload="10%"), {"app": "web"}, "inFlightPerWorkload (ReplicaSet/web)"),
            (limits(per_hour=1), {}, "perHour"),
        ],
    )
    def test_a_limit_below_the_size_of_a_step_is_reported_with_the_needed_value(
        self, of: Limits, fields: dict[str, Any], field: str
    ) -> None:
        step = [victim(number, component=9, **fields) for number in (1, 2)]
        paced = pace([*step, victim(3)], cluster_policy(of))
        assert numbers(paced.now) == [3]
        assert [each.held for each in paced.held] == [
            Held(
                Reason.LIMIT_REACHED,
                f"limits.{field} of policy default is 1, and 2 of the pods that it counts can only go together: "
                "set it to 2 or more",
            )
        ] * 2

    def test_a_move_of_a_closed_policy_holds_its_step(self) -> None:
        step = [victim(1, component=9), victim(2, component=9, policy="shop/own")]
        closed = Held(Reason.WINDOW_CLOSED, "until Monday")
        paced = pace([*step, victim(3)], cluster_policy(WIDE), closed={"shop/own": closed})
        assert numbers(paced.now) == [3]
        assert [each.held for each in paced.held] == [closed, closed]

    def test_a_held_step_does_not_hold_others_of_its_component(self) -> None:
        policy = cluster_policy(limits(in_flight_per_node=1))
        first, second = victim(1, on="node-x", component=9), victim(2, component=9, step=1)
        assert numbers(pace([first, second], policy).now) == [1, 2]
        assert numbers(pace([first, second], policy, in_flight=(victim(3, on="node-x"),)).now) == [2]

    @pytest.mark.parametrize(("limit", "said"), [(500, ""), (10_000, " (10000, of which 500 count)")])
    def test_no_more_moves_are_in_flight_than_a_status_can_hold(self, limit: int, said: str) -> None:
        policy = cluster_policy(limits(in_flight=limit, in_flight_per_namespace=10_000))
        paced = pace([victim(number) for number in range(MAX_MOVES_IN_FLIGHT + 2)], policy)
        assert len(paced.now) == MAX_MOVES_IN_FLIGHT
        assert paced.held[0].held.message.startswith(f"limits.inFlight{said} of policy default is 500")


some_moves = st.lists(
    st.tuples(
        st.integers(0, 99),
        st.sampled_from(["web", "api", "db"]),
        st.sampled_from(["node-a", "node-b", "node-c"]),
        st.sampled_from(["shop", "blog"]),
    ),
    max_size=20,
    unique_by=lambda each: each[0],
).map(lambda all_: [victim(number, app=app, on=on, namespace=namespace) for number, app, on, namespace in all_])


@given(some_moves, st.integers(0, 20), *[st.integers(1, 4) for _ in range(4)], st.none() | st.integers(0, 6))
def test_no_limit_is_exceeded_and_no_move_is_held_unnecessarily(
    moves: list[Move], sent: int, total: int, per_namespace: int, per_node: int, per_workload: int, per_hour: int | None
) -> None:
    of = Limits(
        in_flight=total,
        in_flight_per_namespace=per_namespace,
        in_flight_per_node=per_node,
        in_flight_per_workload=per_workload,
        per_hour=per_hour,
    )
    in_flight, planned = tuple(moves[:sent]), moves[sent:]
    paced = pace(planned, cluster_policy(of), in_flight=in_flight)
    assert sorted(numbers(paced.now) + numbers([each.move for each in paced.held])) == sorted(numbers(planned))

    def room(under_way: Sequence[Move], made: int, one: Move) -> bool:
        here = one.pod
        return (
            len(under_way) < total
            and sum(each.pod.namespace == here.namespace for each in under_way) < per_namespace
            and sum(each.pod.node_name == here.node_name for each in under_way) < per_node
            and sum(each.workload == one.workload for each in under_way) < per_workload
            and (per_hour is None or made < per_hour)
        )

    under_way = [*in_flight, *paced.now]
    for number, one in enumerate(paced.now):
        before = len(in_flight) + number
        assert room([*in_flight, *paced.now[:number]], before - len(in_flight), one)
    for each in paced.held:
        assert not room(under_way, len(paced.now), each.move)


def test_the_namespace_with_the_fewest_moves_in_flight_is_next() -> None:
    policy = cluster_policy(limits(in_flight=6))
    moves = [victim(number, namespace="greedy") for number in range(1, 8)]
    moves += [victim(number, namespace="shop") for number in (11, 12)]
    moves += [victim(number, namespace="blog") for number in (21, 22)]
    in_flight = (victim(31, namespace="greedy"), victim(32, namespace="shop"))
    paced = pace(moves, policy, in_flight=in_flight)
    assert numbers(paced.now) == [1, 11, 21, 22]
    assert numbers([each.move for each in paced.held]) == [2, 3, 4, 5, 6, 7, 12]
    assert numbers(pace(moves, cluster_policy(limits(in_flight=3)), in_flight=in_flight).now) == [21]


def test_among_equal_namespaces_the_one_served_longest_ago_is_next() -> None:
    policy = cluster_policy(limits(in_flight=1))
    moves = [victim(number, namespace=name) for number, name in enumerate(("a", "b", "c"))]
    served = Standings().with_eviction("a").with_eviction("c")
    assert numbers(pace(moves, policy, standings=served).now) == [1]
    assert numbers(pace(moves, policy, standings=served.with_eviction("b")).now) == [0]


class TestUnprovenNamespaces:
    """Namespaces in which no replacement was Ready yet share a part of the limit if others may need some."""

    policy = cluster_policy(limits(in_flight=10))
    greedy = tuple(victim(number, namespace="greedy") for number in range(10))

    def test_a_single_namespace_uses_the_whole_limit(self) -> None:
        assert len(pace(self.greedy, self.policy, standings=Standings()).now) == 10
        closed = {"shop/own": Held(Reason.DRY_RUN, "it only plans")}
        moves = [*self.greedy, victim(20, namespace="shop", policy="shop/own")]
        assert len(pace(moves, self.policy, standings=Standings(), closed=closed).now) == 10, "nothing for others"

    def test_a_new_namespace_gets_a_first_move(self) -> None:
        others = [victim(20 + number, namespace=f"other-{number}") for number in range(5)]
        assert len(pace([*self.greedy, others[0]], self.policy, standings=Standings()).now) == 2
        assert len(pace(self.greedy, self.policy, standings=Standings(), in_flight=(others[0],)).now) == 1
        ready = Standings().with_end("greedy", ready=True)
        assert len(pace(self.greedy, self.policy, standings=ready, in_flight=tuple(others[:3])).now) == 7
        paced = pace([*self.greedy, *others], self.policy, standings=Standings())
        assert Counter(each.pod.namespace for each in paced.now) == {
            "greedy": 1,
            **{f"other-{number}": 1 for number in range(5)},
        }
        assert paced.held[0].held == Held(
            Reason.LIMIT_REACHED,
            "in namespace greedy no replacement was Ready yet: such namespaces share 2 of the 10 evictions that "
            "limits.inFlight of policy default allows, and 6 are in flight",
        )

    def test_a_failed_namespace_gets_only_its_share_even_if_it_is_alone(self) -> None:
        failed = Standings().with_end("greedy", ready=False)
        paced = pace(self.greedy, self.policy, standings=failed)
        assert len(paced.now) == 2
        assert "in namespace greedy the last replacement was not Ready" in paced.held[0].held.message
        assert len(pace(self.greedy, self.policy, standings=failed.with_end("greedy", ready=True)).now) == 10
        assert len(pace(self.greedy, cluster_policy(limits(in_flight=2)), standings=failed).now) == 1
        others = tuple(victim(number, namespace="fine") for number in (20, 21))
        beside = failed.with_end("fine", ready=True)
        assert len(pace(self.greedy, self.policy, standings=beside, in_flight=others).now) == 2

    def test_a_step_larger_than_the_share_is_made_if_the_share_is_free(self) -> None:
        failed = Standings().with_end("greedy", ready=False)
        step = [victim(number, namespace="greedy", component=9) for number in (1, 2, 3)]
        assert len(pace(step, self.policy, standings=failed).now) == 3
        assert len(pace(step, self.policy, standings=failed, in_flight=self.greedy[4:5]).now) == 0

    def test_the_limit_of_a_namespaced_policy_is_not_shared(self) -> None:
        own = Policy(
            kind="RebalancePolicy", namespace="shop", object_name="own", spec=PolicySpec(limits=limits(in_flight=5))
        )
        moves = [victim(number, namespace="shop", policy="shop/own") for number in range(5)]
        others = [victim(number, namespace="blog") for number in (11, 12)]
        assert len(pace([*moves, *others], own, standings=Standings().with_end("shop", ready=False)).now) == 7
        in_flight = (victim(20, namespace="shop", policy="shop/own"), victim(21, namespace="blog"))
        assert len(pace([*moves, *others], own, in_flight=in_flight).now) == 6, "one of its own counts"

    def test_deleted_namespaces_are_forgotten(self) -> None:
        known = Standings().with_end("a", ready=True).with_eviction("a").with_eviction("b")
        left = known.among({"b"})
        assert (dict(left.ready), dict(left.served)) == ({}, {"b": 2})
        assert left.with_eviction("c").served["c"] == 3
        assert known.among({"a", "b"}) is known
        assert not known.among({"c"}).served


@given(some_moves, st.lists(st.integers(1, 3), min_size=20, max_size=20), *[st.integers(1, 4) for _ in range(4)])
def test_steps_are_made_completely_and_within_every_limit(
    moves: list[Move], sizes: list[int], total: int, per_namespace: int, per_node: int, per_workload: int
) -> None:
    of = Limits(
        in_flight=total,
        in_flight_per_namespace=per_namespace,
        in_flight_per_node=per_node,
        in_flight_per_workload=per_workload,
    )
    steps: list[list[Move]] = []
    for component, size in enumerate(sizes):
        taken, moves = moves[:size], moves[size:]
        steps.append([msgspec.structs.replace(each, component=component) for each in taken])
    paced = pace([each for step in steps for each in step], cluster_policy(of))
    made = {each.pod.uid for each in paced.now}
    for step in steps:
        assert len({each.pod.uid in made for each in step}) <= 1
    for places, limit in (
        ([each.pod.namespace for each in paced.now], per_namespace),
        ([each.pod.node_name for each in paced.now], per_node),
        ([str(each.workload) + each.pod.namespace for each in paced.now], per_workload),
        ([""] * len(paced.now), total),
    ):
        assert max(Counter(places).values(), default=0) <= limit
