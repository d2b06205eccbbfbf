"""The rules that hold a move whose controller is in motion. Real controllers are in tests/integration."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from respread.api.reasons import Held, Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.eviction.owners.reading import OwnerReading
from respread.eviction.owners.rest_rules import why_not_at_rest
from tests.eviction_moves import SPEC
from tests.worlds import NOW, pod

READY_SINCE = NOW - timedelta(seconds=20)
OWNER = OwnerReference("apps/v1", "ReplicaSet", "web-1", "uid-web-1")


def watched(name: str, on: str = "node-1", **fields: Any) -> Pod:
    return pod(name, on, SPEC, controller=OWNER, **fields)


def listed(*pods: Pod, revision: str = "v1") -> list[dict[str, Any]]:
    return [
        {
            "metadata": {
                "name": each.name,
                "uid": each.uid,
                "labels": {"controller-revision-hash": revision},
                "deletionTimestamp": "2026-11-21T09:00:00Z" if each.terminating else None,
            },
            "status": {
                "phase": each.phase,
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": str(each.ready), "lastTransitionTime": READY_SINCE.isoformat()},
                ],
            },
        }
        for each in pods
    ]


def controller(replicas: int, name: str = "web-1", **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1, **fields.pop("metadata", {})},
        "spec": {"replicas": replicas, **fields.pop("spec", {})},
        "status": {"observedGeneration": 1, "replicas": replicas, **fields.pop("status", {})},
    }


def reading(
    of: dict[str, Any],
    pods: Collection[dict[str, Any]],
    *,
    kind: str = "ReplicaSet",
    deployment: dict[str, Any] | None = None,
    rollout: dict[str, Any] | None = None,
) -> OwnerReading:
    owner, owner_kind = (deployment, "Deployment") if rollout is None else (rollout, "Rollout")
    read = {"kind": kind, "controller": of, "owner": owner, "owner_kind": owner_kind, "pods": pods}
    return msgspec.convert(read, type=OwnerReading)


A, B, C = watched("a"), watched("b", "node-2"), watched("c", "node-3")
ALL = (A, B, C)


def at_rest(read: OwnerReading, **fields: Any) -> Held | None:
    return why_not_at_rest(read, A, **{"known": ALL, "now": NOW, **fields})


def words(held: Held | None) -> str:
    assert held is not None
    return str(held)


def test_a_controller_with_all_its_pods_as_watched_is_at_rest() -> None:
    assert at_rest(reading(controller(3), listed(*ALL))) is None
    bare = {"metadata": {"name": "web-1", "uid": "uid-web-1"}}
    assert at_rest(reading(bare, listed(A), deployment=bare), known=(A,)) is None
    new = {"metadata": {**bare["metadata"], "generation": 1}}
    assert "has not caught up" in words(at_rest(reading(new, listed(A)), known=(A,)))


def test_finished_and_terminating_pods_are_not_counted() -> None:
    finished, going = watched("d", phase="Failed"), watched("e", deletion_timestamp=NOW)
    assert at_rest(reading(controller(3), listed(*ALL, finished, going)), known=(*ALL, finished, going)) is None
    assert at_rest(reading(controller(3), listed(*ALL, going)), known=ALL) is None


class TestMissingPods:
    """A missing replacement of an evicted pod restores the spread. It holds the move for any evictor."""

    def test_a_missing_pod_holds_the_move(self) -> None:
        held = at_rest(reading(controller(3), listed(A, B)), known=(A, B))
        assert words(held) == "InMotion: ReplicaSet web-1 has 2 pods and wants 3: a replacement is still to come"

    def test_a_pod_that_respread_evicted_is_not_missing(self) -> None:
        held = at_rest(reading(controller(3), listed(A, B)), known=(A, B), leaving={C.uid}, unreplaced=1)
        assert held is None
        # the API server accepted the eviction and the list does not show it yet
        assert at_rest(reading(controller(3), listed(*ALL)), leaving={C.uid}, unreplaced=1) is None
        four = (*ALL, watched("d"))
        assert at_rest(reading(controller(3), listed(*four)), known=four, leaving={C.uid}) is None

    def test_a_missing_pod_beside_one_that_respread_evicted_holds_the_move(self) -> None:
        four = (*ALL, watched("d"))
        held = at_rest(reading(controller(5), listed(A, B, four[3])), known=four, leaving={C.uid}, unreplaced=1)
        assert "has 3 pods and wants 5" in words(held)

    def test_a_scale_down_deletes_pods_without_replacements(self) -> None:
        assert "being scaled down" in words(at_rest(reading(controller(2), listed(*ALL))))


class TestOutdatedPlan:
    """A plan holds only while the watched state is the state in the API server."""

    def test_a_pod_that_the_watch_has_not_shown_holds_the_move(self) -> None:
        held = at_rest(reading(controller(3), listed(A, B, watched("d"))), known=(A, B))
        assert words(held) == "InMotion: pods of its workload have changed since the plan was made (d)"
        assert "(d, e, f, g, h)" in words(at_rest(reading(controller(9), listed(*ALL, *map(watched, "defghi")))))

    def test_a_watched_pod_that_was_replaced_holds_the_move(self) -> None:
        assert "(c, d)" in words(at_rest(reading(controller(3), listed(A, B, watched("d")))))

    def test_a_replacement_that_has_landed_since_holds_no_move(self) -> None:
        """The plan reckons with it wherever it lands."""
        assert at_rest(reading(controller(3), listed(*ALL)), known=(A, B, watched("c", ""))) is None

    def test_as_many_new_pods_as_the_plan_expects_hold_no_move(self) -> None:
        """`c` was evicted before the plan was made, and the watch did not show its replacement `d` yet."""
        read = reading(controller(3), listed(A, B, watched("d")))
        assert at_rest(read, known=(A, B), expected=1) is None
        assert "(d, e)" in words(
            at_rest(reading(controller(4), listed(A, B, watched("d"), watched("e"))), known=(A, B), expected=1)
        )

    def test_a_pod_that_a_move_has_replaced_since_holds_no_move(self) -> None:
        """The plan knew `c`, and `d` is its Ready replacement: the move has ended since."""
        read = reading(controller(3), listed(A, B, watched("d")))
        assert at_rest(read, known=(A, B, C), exchanged={C.uid: watched("d").uid}) is None
        assert "(c, d)" in words(at_rest(read, known=(A, B, C), exchanged={B.uid: "another"}))

    def test_a_pod_that_is_no_longer_ready_holds_the_moves_of_all(self) -> None:
        """The limits count it, and the watch may not show it yet."""
        broken = msgspec.structs.replace(C, ready=False)
        held = at_rest(reading(controller(3), listed(A, B, broken)))
        assert words(held) == "InMotion: pods of its workload are no longer Ready since the plan was made (c)"
        assert at_rest(reading(controller(3), listed(A, B, broken)), known=(A, B, broken)) is None
        assert at_rest(reading(controller(3), listed(*ALL)), known=(A, B, broken)) is None
        six = [watched(name) for name in "bcdefg"]
        read = reading(controller(7), listed(A, *(msgspec.structs.replace(each, ready=False) for each in six)))
        assert "(b, c, d, e, f)" in words(at_rest(read, known=(A, *six)))

    def test_a_move_of_a_missing_pod_is_held(self) -> None:
        held = at_rest(reading(controller(2), listed(B, C)))
        assert words(held) == "InMotion: it is not where it was when the plan was made"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": {"deletionTimestamp": "2026-11-21T09:00:00Z"}}, Reason.UNKNOWN_REPLACEMENT),
        ({"status": {"observedGeneration": 0}}, Reason.IN_MOTION),
    ],
)
def test_a_controller_that_is_deleted_or_behind_its_generation_holds_the_move(
    changes: dict[str, Any], reason: Reason
) -> None:
    held = at_rest(reading(controller(3, **changes), listed(*ALL)))
    deployed = at_rest(reading(controller(3), listed(*ALL), deployment=controller(3, "web", **changes)))
    assert [words(each).partition(":")[0] for each in (held, deployed)] == [reason, reason]


UNCHANGED: dict[str, dict[str, Any]] = {
    "Deployment": {},
    "Rollout": {"observedGeneration": "1", "updatedReplicas": 3, "currentPodHash": "6d", "stableRS": "6d"},
    "CloneSet": {"updatedReplicas": 3, "currentRevision": "web-1", "updateRevision": "web-1"},
}
AT = "2026-11-21T10:00:00Z"


@pytest.mark.parametrize(
    ("kind", "spec", "status", "said"),
    [
        ("Rollout", {}, {}, ""),
        *(
            ("Rollout", {}, {"observedGeneration": observed}, "InMotion: Rollout web has changed…")
            for observed in ("0", "", "6d5f7c9b4", "-1", "²", "9" * 5000)
        ),
        ("Rollout", {}, {"currentPodHash": "7e", "updatedReplicas": 1}, "InMotion: Rollout web is being rolled out,…"),
        ("Rollout", {}, {"replicas": 4}, "InMotion: Rollout web is being rolled out: 1 of its pods are of an older…"),
        ("Rollout", {}, {"replicas": 6}, "InMotion: Rollout web is being rolled out: 3 of its pods are of an older…"),
        ("Rollout", {"restartAt": AT}, {}, "InMotion: Rollout web is restarting its pods (spec.restartAt)"),
        ("Rollout", {"restartAt": AT}, {"restartedAt": AT}, ""),
        ("Rollout", {}, {"restartedAt": AT}, ""),
        ("Rollout", {"replicas": 5}, {}, "InMotion: Rollout web wants 5 pods and has told its ReplicaSet web-1 3…"),
        ("CloneSet", {}, {}, ""),
        ("CloneSet", {}, {"updatedReplicas": 1, "updateRevision": "web-2"},
         "InMotion: CloneSet web is being rolled out: 2 of its pods are of an older revision"),
        # After a rollback, the revisions are equal before all of its pods are of that one, and the other way round.
        ("CloneSet", {}, {"updatedReplicas": 2}, "InMotion: …"),
        ("CloneSet", {}, {"updateRevision": "web-2"}, "InMotion: …"),
        *(
            ("CloneSet", {"updateStrategy": keeps}, {"updatedReplicas": 1, "updateRevision": "web-2"}, "ProtectedPod:…")
            for keeps in ({"partition": 2}, {"partition": "50%"}, {"paused": True})
        ),
        ("CloneSet", {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}, {},
         "UnknownReplacement: CloneSet web has volumeClaimTemplates…"),
        ("Deployment", {}, {"updatedReplicas": 3}, ""),
        ("Deployment", {"paused": True}, {"updatedReplicas": 3}, ""),
        ("Deployment", {}, {"replicas": 2, "updatedReplicas": 2}, ""),  # without a pod that Respread evicted
        ("Deployment", {}, {"replicas": 4, "updatedReplicas": 3},
         "InMotion: Deployment web is being rolled out: 1 of its pods are of an older template"),
        ("Deployment", {"paused": True}, {},
         ("ProtectedPod: Deployment web is paused in the middle of a rollout, 3 of its pods are of an older template: "
          "resume it, or roll it back")),
        ("Deployment", {"replicas": 5}, {"updatedReplicas": 3},
         "InMotion: Deployment web wants 5 pods and has told its ReplicaSet web-1 3…"),
    ],
)  # fmt: skip
def test_a_controller_is_at_rest_once_all_of_its_pods_are_of_its_template(
    kind: str, spec: dict[str, Any], status: dict[str, Any], said: str
) -> None:
    top = controller(3, "web", spec=spec, status={**UNCHANGED[kind], **status})
    of_kind: dict[str, Any] = {"kind": kind} if kind == "CloneSet" else {kind.lower(): top}
    held = at_rest(reading(top if kind == "CloneSet" else controller(3), listed(*ALL), **of_kind))
    found = "" if held is None else words(held)
    assert found.startswith(said[:-1]) if said.endswith("…") else found == said


class TestStatefulSet:
    """Each pod must have the revision from which it would be recreated."""

    pods = tuple(pod(f"db-{n}", f"node-{n}", SPEC) for n in (0, 1, 2))

    def check(self, revisions: str, *, of: int = 2, pods: tuple[Pod, ...] | None = None, **fields: Any) -> Held | None:
        pods = self.pods if pods is None else pods
        spec = fields.pop("spec", {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {}}})
        status = {"currentRevision": "v1", "updateRevision": "v2", **fields.pop("status", {})}
        shown = [listed(each, revision=f"v{number}")[0] for each, number in zip(pods, revisions, strict=True)]
        read = reading(controller(3, "db", spec=spec, status=status), shown, kind="StatefulSet")
        return why_not_at_rest(read, pods[of], pods, now=NOW)

    def test_pods_with_the_newest_revision_may_be_evicted(self) -> None:
        assert self.check("222") is None
        assert self.check("111", status={"updateRevision": "v1"}) is None

    def test_a_rollout_in_progress_holds_the_move(self) -> None:
        held = self.check("112", of=0)
        assert words(held) == "InMotion: StatefulSet db is being rolled out: db-0 is still at revision v1"
        assert "db-0 is still at revision v1" in words(self.check("122", of=2))
        assert "db-1 is still at revision v1" in words(self.check("112", of=1))

    @pytest.mark.parametrize(
        ("start", "partition", "at_rest"), [(0, 2, True), (0, 1, False), (5, 2, True), (5, 1, False)]
    )
    def test_a_partition_keeps_lower_ordinals_at_the_old_revision(
        self, start: int, partition: int, *, at_rest: bool
    ) -> None:
        spec = {
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}},
            "ordinals": {"start": start},
        }
        # The partition counts from the first ordinal.
        shown = tuple(pod(f"db-{start + n}", f"node-{n}", SPEC) for n in range(3))
        assert (self.check("112", of=0, pods=shown, spec=spec) is None) is at_rest

    @pytest.mark.parametrize("policy", ["Parallel", "OrderedReady"])
    @pytest.mark.parametrize("of", [0, 2])
    def test_a_pod_with_an_unwanted_ordinal_holds_the_set(self, of: int, policy: str) -> None:
        """As after `ordinals.start` was changed while a quota keeps db-3 from being created."""
        held = self.check("111", of=of, spec={"ordinals": {"start": 1}, "podManagementPolicy": policy})
        assert words(held).startswith("InMotion: the ordinals of StatefulSet db start at 1, and db-0 is none of its 3")
        without = (pod("db-x", "node-0", SPEC), *self.pods[1:])
        assert "start at 0, and db-x is none of its 3" in words(self.check("111", of=of, pods=without))

    def test_with_on_delete_only_the_pod_itself_matters(self) -> None:
        on_delete = {"updateStrategy": {"type": "OnDelete"}}
        assert self.check("112", of=2, spec=on_delete, status={"currentReplicas": 3}) is None
        held = words(self.check("112", of=0, spec=on_delete))
        assert held.startswith("ProtectedPod: StatefulSet db would bring it back at revision v2 instead of v1")

    def test_without_a_rolling_update_block_current_replicas_says_how_many_stay(self) -> None:
        for start in (0, 5):
            rolling = {"updateStrategy": {"type": "RollingUpdate"}, "ordinals": {"start": start}}
            shown = tuple(pod(f"db-{start + n}", f"node-{n}", SPEC) for n in range(3))
            assert self.check("222", pods=shown, spec=rolling) is None
            assert self.check("122", pods=shown, spec=rolling, status={"currentReplicas": 1}) is None
            assert self.check("122", pods=shown, spec=rolling, status={"currentReplicas": 2}) is not None


class TestOrderedReady:
    """Under OrderedReady the controller recreates a pod only when all lower ordinals are Ready and available."""

    pods = tuple(pod(f"db-{n}", f"node-{n}", SPEC) for n in (0, 1, 2))

    def check(
        self,
        of: int,
        changed: dict[int, dict[str, Any] | None] | None = None,
        *,
        leaving: Collection[int] = (),
        together: Collection[int] = (),
        **spec: Any,
    ) -> Held | None:
        """Check one of db-0, db-1 and db-2, some of which have another status or are missing."""
        shown = dict(enumerate(listed(*self.pods)))
        for number, status in (changed or {}).items():
            if status is None:
                del shown[number]
            else:
                shown[number] |= status
        read = reading(
            controller(3, "db", spec={"updateStrategy": {"type": "OnDelete"}, **spec}, status={"updateRevision": "v1"}),
            list(shown.values()),
            kind="StatefulSet",
        )
        known = [msgspec.structs.replace(each, ready=not (changed or {}).get(n)) for n, each in enumerate(self.pods)]
        gone = {self.pods[number].uid for number in leaving}
        return why_not_at_rest(
            read,
            self.pods[of],
            known,
            gone,
            unreplaced=len(leaving),
            expected=len(leaving),
            now=NOW,
            together=[self.pods[number].uid for number in together],
        )

    def test_no_pod_of_a_complete_set_waits(self) -> None:
        assert [self.check(of) for of in range(3)] == [None] * 3

    def test_a_lower_ordinal_that_is_not_ready_holds_only_the_higher_ones(self) -> None:
        broken: dict[int, dict[str, Any] | None] = {
            1: {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}}
        }
        held = self.check(2, broken)
        assert words(held) == (
            "ReplacementWouldWait: StatefulSet db (podManagementPolicy OrderedReady) recreates db-2 only when all "
            "lower ordinals are Ready and available, and db-1 is not Ready"
        )
        assert self.check(1, broken) is None
        assert self.check(0, broken) is None
        assert self.check(2, broken, podManagementPolicy="Parallel") is None
        strange = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "True"}]}
        assert "db-1 is not Ready" in words(self.check(2, {1: {"status": strange}}))

    def test_a_lower_ordinal_must_be_available_too(self) -> None:
        assert "has not been Ready for minReadySeconds, 30 s, yet" in words(self.check(2, minReadySeconds=30))
        assert self.check(0, minReadySeconds=30) is None
        assert self.check(2, minReadySeconds=20) is None

    def test_a_lower_ordinal_that_says_it_becomes_ready_at_the_end_of_time_is_not_available(self) -> None:
        for time in ("9999-12-31T23:59:59Z", None):
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": time}
            late: dict[int, dict[str, Any] | None] = {1: {"status": {"phase": "Running", "conditions": [ready]}}}
            assert "minReadySeconds" in words(self.check(2, late, minReadySeconds=1))
            assert self.check(2, late) is None, "without minReadySeconds it need only be Ready, whatever the clocks say"

    def test_a_move_in_flight_at_another_ordinal_holds_the_pod(self) -> None:
        assert words(self.check(2, leaving=[0])).startswith("InMotion: ")
        assert "db-0 is being moved" in words(self.check(2, leaving=[0]))
        assert "would create db-2, which is being moved, only when the replacement of db-1" in words(
            self.check(1, leaving=[2])
        )
        assert "db-2, which is missing" in words(self.check(1, {2: None}, leaving=[2]))
        assert self.check(1, leaving=[2], podManagementPolicy="Parallel") is None
        again = {"metadata": {"name": "db-0", "uid": "another", "deletionTimestamp": "2026-11-21T09:00:00Z"}}
        assert "db-0 is being deleted or has run to its end" in words(self.check(2, {0: again}, leaving=[0]))

    def waits(self, *, ready: Collection[int], leaving: Collection[int] = ()) -> list[str]:
        """Return what holds each pod of a set whose ordinals start at 5."""
        shown = [pod(f"db-{n}", f"node-{n}", SPEC, ready=n in ready) for n in (5, 6, 7)]
        spec = {"ordinals": {"start": 5}, "updateStrategy": {"type": "OnDelete"}}
        of = controller(3, "db", spec=spec, status={"updateRevision": "v1"})
        read = reading(of, listed(*shown), kind="StatefulSet")
        gone = [f"uid-default-db-{n}" for n in leaving]
        return [str(why_not_at_rest(read, each, shown, gone, unreplaced=len(gone), now=NOW)) for each in shown]

    def test_the_order_begins_at_the_first_ordinal(self) -> None:
        waits = self.waits(ready=(6, 7))
        assert waits[0] == "None"
        assert "db-5 is not Ready" in waits[1]
        assert "db-5 is not Ready" in waits[2]

    def test_the_order_ends_at_the_last_ordinal(self) -> None:
        waits = self.waits(ready=(5, 6, 7), leaving=[7])
        assert ["would create db-7, which is being moved" in each for each in waits] == [True, True, False]

    def test_two_of_one_step_wait_for_each_other(self) -> None:
        assert words(self.check(2, together=[1])).startswith("ReplacementWouldWait: ")
        assert "db-1 would have to go together with it" in words(self.check(2, together=[1]))
        assert "db-2, which would have to go together with it" in words(self.check(1, together=[2]))
        assert self.check(1, together=[2], podManagementPolicy="Parallel") is None
        assert at_rest(reading(controller(3), listed(*ALL)), together=[B.uid]) is None

    def test_ordinals_may_start_anywhere(self) -> None:
        assert "db-0 is missing" not in str(self.check(1, ordinals={"start": 1}))
