"""The leader's reaction to consecutive failures of evictions."""

from __future__ import annotations

import pytest

from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import WorkloadName
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.history import History
from respread.holds.backoff import PAUSE
from respread.moves.entry import Ended, Outcome
from respread.moves.ledger import Ledger
from tests.eviction_moves import move
from tests.spreads import spread_of
from tests.virtual_time import Clock
from tests.worlds import cluster, constraint, node, pod, pods, spec

NOW = 1_800_000_000.0
POLICY = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(mode="Enforce"))
FIRST = PAUSE.first_seconds
NOBODY = ClusterSnapshot()


def after_failures(clock: Clock) -> History:
    """Return the history after three workloads of one namespace failed, and again on trial."""
    history = History(clock)
    for name in ("a", "b", "c", "a", "b"):
        history.breakers = history.breakers.failed("default", WorkloadName("Deployment", "shop", name), 3, clock.now)
        clock.now = history.breakers.policies["default"].until
    clock.now = history.breakers.policies["default"].until - PAUSE.seconds(3)
    return history


def test_a_pause_ends_after_a_minute_for_one_move_elsewhere_and_at_its_end_where_something_has_failed() -> None:
    clock = Clock(NOW)
    history = after_failures(clock)

    def held(namespace: str, *undecided: str) -> bool:
        return history.why_not_tried(POLICY, namespace, undecided, NOBODY) is not None

    clock.now += FIRST - 1
    assert held("shop")
    assert held("elsewhere")
    clock.now += 1
    assert held("shop")
    assert not held("elsewhere", "shop")
    assert held("elsewhere", "shop", "elsewhere")
    clock.now = history.breakers.policies["default"].until
    assert held("shop", "elsewhere")
    assert not held("shop")
    history = History(clock)
    assert not held("shop", "shop"), "nothing has failed"


def replacement(*, ready: bool, of: str = "c", phase: str = "Running") -> ClusterSnapshot:
    """Return a cluster with a pod of a workload; `c` failed last."""
    controller = OwnerReference("apps/v1", "StatefulSet", of, f"uid-{of}")
    return cluster(
        [], [pod(f"{of}-0", "a1", spec(), namespace="shop", controller=controller, ready=ready, phase=phase)]
    )


def failed_stateful_sets(clock: Clock, history: History | None = None) -> History:
    history = history or History(clock)
    for name in ("a", "b", "c"):
        history.breakers = history.breakers.failed("default", WorkloadName("StatefulSet", "shop", name), 3, clock.now)
    clock.now = history.breakers.policies["default"].until
    return history


def test_the_replacements_that_are_not_ready_are_the_trial_after_a_pause() -> None:
    """No healthy pod is evicted for what is being tried already."""
    history = failed_stateful_sets(Clock(NOW))
    history.follow_trials({"default": POLICY}, replacement(ready=False))
    held = history.why_not_tried(POLICY, "shop", (), replacement(ready=False))
    assert held is not None
    assert held.message.endswith("shop/c-0 is not Ready: no other pod is tried before it is")
    assert history.why_not_tried(POLICY, "elsewhere", (), replacement(ready=False)) is None
    another = replacement(ready=False, of="another")
    assert history.why_not_tried(POLICY, "shop", (), another) is None
    assert history.why_not_tried(POLICY, "shop", (), replacement(ready=False, phase="Failed")) is None
    name = WorkloadName("StatefulSet", "shop", "another")
    history.breakers = history.breakers.failed("default", name, 3, NOW)
    held = history.why_not_tried(POLICY, "shop", (), another)
    assert (held and held.message.endswith("another-0 is not Ready: no other pod is tried before it is")) is True


def test_a_pause_is_over_when_the_replacement_becomes_ready_at_last() -> None:
    clock = Clock(NOW)
    history = failed_stateful_sets(clock)
    assert not history.follow_trials({"default": POLICY}, replacement(ready=True))
    history.follow_trials({}, replacement(ready=True))  # the policy was deleted, and is created again
    assert history.single(POLICY) is not None  # Nothing was waited for: what failed may be another thing.
    history.follow_trials({"default": POLICY}, replacement(ready=False))
    assert history.single(POLICY) is not None
    assert history.follow_trials({"default": POLICY}, replacement(ready=True)) == [POLICY]
    assert history.single(POLICY) is None
    failed_stateful_sets(clock, history)
    history.follow_trials({"default": POLICY}, replacement(ready=True))
    assert history.single(POLICY) is not None, "nothing was waited for since"
    once = History(clock)
    once.breakers = once.breakers.failed("default", WorkloadName("StatefulSet", "shop", "c"), 3, clock.now)
    assert not [once.follow_trials({"default": POLICY}, replacement(ready=ready)) for ready in (False, True)][1]
    assert once.breakers.policies, "no pause was over"


def test_a_chosen_move_counts_before_it_is_recorded_and_only_once() -> None:
    """Another reconcile may choose while a move waits to be recorded, and must not exceed the limit per hour."""
    ledger, chosen = Ledger(), move("web-1")
    history = History(lambda: NOW, expected=lambda: (*ledger.expected,))

    def counted() -> tuple[int, int]:
        """Return what counts in records, and for the next choice."""
        seen = history.at(NOW, ledger.expected_with_chosen)
        return (history.history.count_in_last_hour("default", NOW), seen.history.count_in_last_hour("default", NOW))

    ledger = ledger.with_chosen([chosen], NOBODY, NOW, bounded={chosen.pod.uid: ("default",)})
    assert counted() == (0, 1)
    ledger = ledger.recorded(chosen)
    assert counted() == (1, 1)
    assert history.group_history is history.group_history, "it is not worked out anew for each group"
    entry = ledger.of(chosen)
    assert entry is not None
    assert entry.counts is not None
    ledger = ledger.settled(chosen)
    assert counted() == (0, 0)
    history.count(entry.counts)
    assert counted() == (1, 1)


@pytest.mark.parametrize(
    ("outcome", "fields", "backs_off", "failures", "pauses"),
    [
        (Outcome.UNKNOWN, {}, False, 3, True),
        (Outcome.UNKNOWN, {"unmade": True}, True, 3, True),
        (Outcome.UNKNOWN, {"unreplaced": True}, True, 4, True),
        (Outcome.IMPROVED, {}, False, 3, False),  # until it is known to last
    ],
)
def test_a_group_backs_off_unless_no_replacement_is_wanted_and_a_trial_without_success_pauses_again(
    outcome: Outcome, fields: dict[str, bool], backs_off: bool, failures: int, pauses: bool
) -> None:
    ((key, found),) = spread_of(cluster([node("a1", "a")], pods({"a1": 2}, spec(constraint())))).groups.items()
    evicted = move(pod("web-0", "a1", spec(constraint())), groups=(key,))
    ended = Ended(move=evicted, outcome=outcome, replacement=None, seconds=12.0, message="", **fields)
    history = failed_stateful_sets(Clock(NOW))
    history.learn(ended, {key: found}, POLICY)
    assert bool(history.back_offs.groups) == backs_off
    assert len(history.breakers.policies["default"].workloads) == failures
    assert (history.paused(POLICY) is not None) == pauses


@pytest.mark.parametrize(
    ("outcome", "is_ready", "seconds", "ready"),
    [
        (Outcome.IMPROVED, True, 1.0, True),
        (Outcome.NOT_READY, True, 1.0, False),  # it did not stay
        (Outcome.UNKNOWN, False, 59.9, None),
        (Outcome.UNKNOWN, None, 60.0, False),
    ],
)
def test_a_namespace_stands_as_its_last_replacement_did(
    outcome: Outcome, *, is_ready: bool | None, seconds: float, ready: bool | None
) -> None:
    history = History(lambda: NOW)
    replacement = None if is_ready is None else pod("web-1", "a1", spec(), ready=is_ready)
    ended = Ended(move=move("web-0"), outcome=outcome, replacement=replacement, seconds=seconds, message="")
    history.learn(ended, {}, None)  # its policy was deleted
    assert history.standings.ready.get("default") is ready
