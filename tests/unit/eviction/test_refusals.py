"""A refused eviction is not requested again until a change or the end of some time, and a held move only soon."""

from __future__ import annotations

from math import inf

import pytest

from respread.api.reasons import Held, Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import PodDisruptionBudget
from respread.eviction.answers import Answer, EvictionResult
from respread.holds.refusals import PAUSE, Budgets, Refusals
from respread.planning.plan import Move
from tests.eviction_moves import SPEC, group, move
from tests.virtual_time import Clock
from tests.worlds import pod

A, B = pod("a", "node-1", SPEC), pod("b", "node-1", SPEC)
UNREAD = Held(Reason.API_UNAVAILABLE, "the LimitRanges could not be read")
MOVING = Held(Reason.IN_MOTION, "it has changed")
FIRST, SECOND = (move(each, groups=(group("default"),)) for each in (A, B))


def budgets(allowed: int = 1, *names: str) -> Budgets:
    return tuple(
        PodDisruptionBudget(namespace="default", name=name, disruptions_allowed=allowed) for name in names or ("web",)
    )


def refused(
    result: EvictionResult, retry_after_seconds: float | None = None, of: Budgets = ()
) -> tuple[Refusals, Clock]:
    clock = Clock()
    refusals = Refusals(clock)
    refusals.note(A, of, Answer(result=result, message="no", retry_after_seconds=retry_after_seconds))
    return refusals, clock


@pytest.mark.parametrize(
    "result", [EvictionResult.HELD_BY_BUDGET, EvictionResult.BUDGET_REFUSED, EvictionResult.OVERLAPPING_BUDGETS]
)
def test_a_refusal_by_a_budget_holds_its_pods_until_the_budget_changes(result: EvictionResult) -> None:
    """A missed change does not hold them forever."""
    seen = budgets(1)
    refusals, clock = refused(result, of=seen)
    clock.now = 599
    for each in (A, B):
        held = refusals.why_not(each, seen)
        assert (held and held.message) == "no"
    assert refusals.why_not(B, budgets(1, "another")) is None
    assert refusals.why_not(B, ()) is None
    assert refusals.why_not(B, budgets(2)) is None
    assert refusals.why_not(B, budgets(1)) is None, "it has changed and changed back"
    clock.now = 600
    assert refusals.why_not(A, seen) is None


def test_two_budgets_that_the_watch_has_not_shown_hold_the_pod() -> None:
    refusals, _ = refused(EvictionResult.OVERLAPPING_BUDGETS)
    assert refusals.why_not(A, ()) is not None
    assert refusals.why_not(B, ()) is None
    assert refusals.why_not(A, budgets(1, "a", "b")) is None


@pytest.mark.parametrize(
    ("result", "retry_after", "seconds"),
    [
        (EvictionResult.BUDGET_OUT_OF_DATE, None, 10),
        (EvictionResult.BUDGET_OUT_OF_DATE, 3, 3),
        (EvictionResult.FORBIDDEN, None, 60),
        (EvictionResult.INVALID, None, 60),
        (EvictionResult.NAMESPACE_TERMINATING, None, 60),
        (EvictionResult.UNAUTHORIZED, None, 10),
    ],
)
def test_other_refusals_hold_one_pod_for_a_while(
    result: EvictionResult, retry_after: float | None, seconds: float
) -> None:
    refusals, clock = refused(result, retry_after)
    clock.now = seconds - 0.1
    assert refusals.why_not(A, ()) is not None
    assert refusals.why_not(A, budgets()) is not None
    assert refusals.why_not(B, ()) is None
    clock.now = seconds
    assert refusals.why_not(A, ()) is None


@pytest.mark.parametrize(("retry_after", "seconds"), [(5, 5), (None, 1)])
@pytest.mark.parametrize("result", [EvictionResult.THROTTLED, EvictionResult.UNREACHABLE])
def test_no_eviction_is_sent_to_a_busy_server(
    result: EvictionResult, retry_after: float | None, seconds: float
) -> None:
    refusals, clock = refused(result, retry_after)
    clock.now = seconds - 0.1
    held = refusals.why_not(B, budgets())
    assert held is not None
    assert held.reason == Reason.API_UNAVAILABLE
    assert refusals.for_planning().why_not(B, budgets()) is None, "plans need not do without the pod"
    clock.now = seconds
    assert refusals.why_not(B, budgets()) is None


@pytest.mark.parametrize("result", ["Evicted", "Gone", "Changed", "Unknown", "ServerError"])
def test_other_results_hold_nothing(result: str) -> None:
    refusals, _ = refused(EvictionResult(result), of=budgets())
    assert refusals.why_not(A, budgets()) is None


def test_each_plan_drops_expired_refusals() -> None:
    refusals, clock = refused(EvictionResult.FORBIDDEN)
    clock.now = 60
    refusals.for_planning()
    clock.now = 0  # an expired refusal that was kept would hold the pod again
    assert refusals.why_not(A, ()) is None


class TestLastLook:
    """Lasting results of the last look are remembered for some time, and plans avoid these pods."""

    ONE, TWO = (
        pod(name, "node-1", SPEC, controller=OwnerReference("apps/v1", "ReplicaSet", "r", "r")) for name in "ab"
    )

    def holding(self, reason: Reason) -> tuple[Refusals, Clock]:
        clock = Clock()
        refusals = Refusals(clock)
        refusals.hold(self.ONE, Held(reason, "no"))
        return refusals, clock

    def held(self, refusals: Refusals) -> list[bool]:
        planned = refusals.for_planning()
        found = [planned.why_not(each, ()) is not None for each in (self.ONE, self.TWO)]
        assert found == [refusals.why_not(each, ()) is not None for each in (self.ONE, self.TWO)]
        assert planned.namespaces == ({"default"} if any(found) else set())
        return found

    @pytest.mark.parametrize(
        ("reasons", "held"),
        [
            (["ReplacementWouldWait", "TemplateDiffers", "ProtectedPod"], [True, False]),
            (["UnknownOwner", "UnknownReplacement", "ReplacementRefused"], [True, True]),
            (["GroupTooLarge", "TooFewReplicas"], [True, True]),
            (["InMotion", "ApiUnavailable"], [False, False]),
        ],
    )
    def test_a_look_holds_a_pod_or_its_controller_for_a_minute(self, reasons: list[str], held: list[bool]) -> None:
        for reason in reasons:
            refusals, clock = self.holding(Reason(reason))
            clock.now = 59
            assert self.held(refusals) == held, reason
            clock.now = 60
            assert self.held(refusals) == [False, False], reason


def test_the_first_of_several_refusals_is_shown() -> None:
    """That of all pods comes first, then that of budgets, then that of the pod, and then that of its controller."""
    clock, seen, owned = Clock(), budgets(1), A
    refusals = Refusals(clock)
    refusals.hold(owned, Held(Reason.TOO_FEW_REPLICAS, "controller"))
    shown = [refusals.why_not(owned, seen)]
    for message, result in (
        ("pod", EvictionResult.FORBIDDEN),
        ("budgets", EvictionResult.HELD_BY_BUDGET),
        ("all", EvictionResult.THROTTLED),
    ):
        refusals.note(owned, seen, Answer(result=result, message=message))
        shown.append(refusals.why_not(owned, seen))
    assert [held and held.message for held in shown] == ["controller", "pod", "budgets", "all"]
    assert refusals.next_end() == 1


class Tried:
    """FIRST move that is tried whenever it may be, and held each time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lately = Refusals(lambda: self.seconds)

    def tries(self, held: Held, seconds: int) -> int:
        """Return how often it is tried in this many seconds."""
        tried, end = 0, self.seconds + seconds
        while self.seconds < end:
            if self.lately.why_not_chosen(FIRST) is None:
                tried += 1
                self.lately.held_back(FIRST, held)
            next_end = self.lately.next_end()
            assert self.seconds < next_end <= self.seconds + PAUSE.longest_seconds
            self.seconds = next_end
        return tried


@pytest.mark.parametrize("held", [[(FIRST, MOVING)], [(each, UNREAD) for each in (FIRST, SECOND, FIRST, SECOND)]])
def test_held_moves_and_the_others_of_their_group_wait_for_one_pause(held: list[tuple[Move, Held]]) -> None:
    tried = Tried()
    assert tried.lately.why_not_chosen(FIRST) is None
    for each, why in held:
        tried.lately.held_back(each, why)
    assert tried.lately.why_not_chosen(FIRST) == tried.lately.why_not_chosen(SECOND) == held[0][1]
    tried.seconds = PAUSE.first_seconds
    assert tried.lately.why_not_chosen(FIRST) is None
    assert tried.lately.next_end() == inf


def test_reads_that_keep_failing_and_motion_that_does_not_end_are_tried_less_and_less_often() -> None:
    """A rollout that is stuck costs five requests each time."""
    tried = Tried()
    assert tried.tries(UNREAD, 15) == 4  # after 1, 2, 4 and 8 s
    assert tried.tries(UNREAD, 600) == 60
    tried = Tried()
    tries = [tried.tries(Held(Reason.API_UNAVAILABLE, f"failure {number}"), 1) for number in range(4)]
    assert (tries, tried.seconds) == ([1] * 4, 15)
    tried = Tried()
    assert tried.tries(MOVING, 5) == 5
    assert tried.tries(MOVING, 600) < 70
    assert tried.tries(Held(Reason.IN_MOTION, "it has changed again"), 5) == 5


def test_a_successful_read_resets_the_pause() -> None:
    tried = Tried()
    tried.tries(UNREAD, 60)
    tried.lately.held_back(FIRST, MOVING)
    tried.seconds += PAUSE.first_seconds
    assert tried.tries(UNREAD, 15) == 4
    tried.seconds += 120
    assert tried.lately.next_end() == inf
    assert tried.tries(UNREAD, 15) == 4
