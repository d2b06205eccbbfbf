"""The answer to an eviction and the outcome of a move produce Events on the policy, the owner and the pod."""

from __future__ import annotations

import pytest

from respread.api.conditions import MissingPermission
from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.reasons import Held, Reason
from respread.cluster.meta import OwnerReference
from respread.controller.announcements import Announcements
from respread.eviction.answers import Answer, EvictionResult
from respread.kube.events import Event
from respread.moves.entry import Ended, Outcome
from tests.eviction_moves import move

POLICY = Policy(kind="ClusterRebalancePolicy", object_name="default", uid="uid-default", spec=ClusterPolicySpec())
MOVE = move("a")
NOT_MADE = sorted(set(EvictionResult) - {EvictionResult.EVICTED})


class Announced:
    """Announcements, and their Events."""

    def __init__(self, policy: Policy | None = POLICY) -> None:
        self.events: list[Event] = []
        self.announcements = Announcements(self.events.append, lambda _: policy)


def on(event: Event) -> str:
    return f"{event.regarding.kind}/{event.regarding.name}"


def test_an_eviction_produces_events_with_its_reason() -> None:
    announced = Announced()
    announced.announcements.eviction(MOVE, Answer(result=EvictionResult.EVICTED))
    assert [(on(each), each.reason, each.type) for each in announced.events] == [
        ("ClusterRebalancePolicy/default", "EvictedForSpread", "Normal"),
        ("ReplicaSet/web", "EvictedForSpread", "Normal"),
        ("Pod/a", "EvictedForSpread", "Normal"),
    ]
    assert all("zone-a holds more than maxSkew 1 allows" in each.note for each in announced.events)
    assert [each.related.name for each in announced.events if each.related is not None] == ["a", "a", "web"]


@pytest.mark.parametrize("result", NOT_MADE)
def test_every_other_answer_produces_a_warning_with_the_servers_message(result: EvictionResult) -> None:
    announced = Announced()
    announced.announcements.eviction(MOVE, Answer(result=result, message="because I say so"))
    assert [(on(each), each.reason, each.type) for each in announced.events] == [
        ("ClusterRebalancePolicy/default", result, "Warning"),
        ("ReplicaSet/web", result, "Warning"),
        ("Pod/a", result, "Warning"),
    ]
    assert all(each.note == "Pod a was not evicted: because I say so" for each in announced.events)


def test_the_owner_gets_an_event_even_if_the_policy_is_deleted() -> None:
    announced = Announced(policy=None)
    announced.announcements.eviction(MOVE, Answer(result=EvictionResult.EVICTED))
    assert [on(each) for each in announced.events] == ["ReplicaSet/web", "Pod/a"]


def test_the_event_is_on_the_top_owner_once_it_is_known() -> None:
    announced = Announced()
    controller = MOVE.pod.controller
    assert controller is not None
    announced.announcements.top_owners.note(
        controller.uid, OwnerReference("apps/v1", "Deployment", "web", "uid-of-web")
    )
    announced.announcements.eviction(MOVE, Answer(result=EvictionResult.EVICTED))
    announced.announcements.end(Ended(move=MOVE, outcome=Outcome.WORSE, replacement=None, seconds=1.0, message="so"))
    workload = [each.regarding for each in announced.events if each.regarding.name == "web"]
    web = ("apps/v1", "Deployment", "uid-of-web")
    assert [(each.api_version, each.kind, each.uid) for each in workload] == [web, web]


@pytest.mark.parametrize("outcome", sorted(Outcome))
def test_only_moves_that_did_not_help_produce_events(outcome: Outcome, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    announced = Announced()
    announced.announcements.end(Ended(move=MOVE, outcome=outcome, replacement=None, seconds=1.26, message="somehow"))
    assert "'seconds': 1.3," in caplog.text
    if outcome is Outcome.IMPROVED:
        assert announced.events == []
    else:
        assert [on(each) for each in announced.events] == ["ClusterRebalancePolicy/default", "ReplicaSet/web"]
        assert {(each.reason, each.type) for each in announced.events} == {("SpreadNotImproved", "Warning")}
        assert all(f"({outcome}): somehow" in each.note for each in announced.events)


def test_a_pause_a_missing_permission_and_their_ends_produce_events_on_the_policy() -> None:
    announced = Announced()
    announced.announcements.paused(POLICY, Held(Reason.PAUSED, "evictions failed in a row"))
    announced.announcements.resumed(POLICY)
    announced.announcements.permissions(POLICY, [MissingPermission("patch pods", ("shop",), "x", "grant it")])
    announced.announcements.permissions(POLICY, ())
    assert [(on(each), each.reason, each.type) for each in announced.events] == [
        ("ClusterRebalancePolicy/default", "EvictionsPaused", "Warning"),
        ("ClusterRebalancePolicy/default", "EvictionsResumed", "Normal"),
        ("ClusterRebalancePolicy/default", "PermissionMissing", "Warning"),
        ("ClusterRebalancePolicy/default", "PermissionGranted", "Normal"),
    ]
    assert announced.events[0].note == "Evictions failed in a row"
