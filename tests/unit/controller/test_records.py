"""Records are written before moves are made, created if missing, and joined with the checkpoint in statuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from respread.api.policy import ClusterPolicySpec, Policy, PolicySpec
from respread.api.record import MAX_RECORD_LENGTH, NOTHING, decode_record, encode_record, with_former, with_record
from respread.api.recorded import FailuresInARow, MoveInFlight, Recorded, RememberedBackOff
from respread.api.status import PolicyStatus, Summary
from respread.cluster.decode.decoder import Kind
from respread.controller.records.exclusive_requests import ExclusiveRequests
from respread.controller.records.record_writer import RecordWriter
from respread.controller.records.status_reader import FoundStatus
from respread.controller.records.status_writer import (
    LEAST_INTERVAL_SECONDS,
    LOOK_AGAIN_SECONDS,
    StatusWriter,
    Wanted,
)
from respread.kube.listing import ListError
from respread.kube.requests import Requests
from respread.stores.watched_kinds import CLUSTER_POLICIES, NAMESPACED_POLICIES, POLICY_KINDS, RECORDS
from tests.integration.stub_api_server import Answering, StubApiServer, answering, dropping

ALL = Policy(kind="ClusterRebalancePolicy", object_name="all", uid="uid-all", spec=ClusterPolicySpec())
OWN = Policy(kind="RebalancePolicy", namespace="shop", object_name="own", uid="uid-own", spec=PolicySpec())
GROUP = "/apis/respread.dev/v1alpha1"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def move(uid: str) -> MoveInFlight:
    return MoveInFlight(
        uid=uid,
        namespace="shop",
        pod=f"pod-{uid}",
        node="node-1",
        workload="Deployment/web",
        controller_kind="ReplicaSet",
        controller_name="web",
        controller_uid="uid-web",
        sent=NOW,
        newest=NOW,
    )


def moves(*uids: str) -> Recorded:
    return Recorded(moves_in_flight=tuple(map(move, uids)))


def writing(
    scenario: Callable[[RecordWriter], Awaitable[None]],
    exclusive_seconds: float = 10.0,
    stub: StubApiServer | None = None,
    **answers: Answering,
) -> StubApiServer:
    """Run a scenario with a writer and with answers by method."""
    stub = StubApiServer() if stub is None else stub
    for method in ("POST", "PATCH"):
        stub.on(method, "", answers.get(method, answering({})))

    async def serve(requests: Requests) -> None:
        await scenario(RecordWriter(ExclusiveRequests(requests, lambda: 100.0, lambda: exclusive_seconds)))

    async def run() -> None:
        async with stub.running() as requests:
            await serve(requests)

    asyncio.run(run())
    return stub


def test_a_record_is_created_once_owned_by_its_policy_and_then_replaced() -> None:
    async def scenario(writer: RecordWriter) -> None:
        assert await writer.write(OWN, moves("a"))
        assert await writer.write(OWN, moves("a", "b"))
        assert await writer.write(OWN, moves("a", "b"))  # the record has not changed
        assert await writer.write(ALL, NOTHING)  # there is no record, and none is needed

    stub = writing(scenario)
    records = f"{GROUP}/namespaces/shop/rebalancepolicyrecords"
    assert stub.requests == [("POST", records), ("PATCH", f"{records}/uid-own")]
    made, changed = stub.bodies
    assert made["metadata"]["name"] == "uid-own"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("RebalancePolicy", "own", "uid-own")
    assert decode_record(made["record"]) == moves("a")
    assert changed.keys() == {"record"}
    assert decode_record(changed["record"]) == moves("a", "b")


def test_a_deleted_record_is_created_again() -> None:
    async def scenario(writer: RecordWriter) -> None:
        writer.begin([FoundStatus("uid-all", PolicyStatus(), moves("a"))])
        assert await writer.write(ALL, moves("a", "b"))

    stub = writing(scenario, PATCH=answering({"message": "not found"}, status=404))
    assert [method for method, _ in stub.requests] == ["PATCH", "POST"]


def test_a_record_from_an_unanswered_request_is_replaced() -> None:
    async def scenario(writer: RecordWriter) -> None:
        assert await writer.write(ALL, moves("a"))

    stub = writing(scenario, POST=answering({"message": "already exists"}, status=409))
    assert [method for method, _ in stub.requests] == ["POST", "PATCH"]


@pytest.mark.parametrize(
    "answer", [answering({"message": "no"}, status=500), answering({"message": "no"}, status=403), dropping]
)
def test_a_record_whose_write_was_not_confirmed_is_written_again(
    answer: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(writer: RecordWriter) -> None:
        assert not await writer.write(ALL, moves("a"))
        assert not writer.is_stored(ALL, moves("a"))
        assert not await writer.write(ALL, moves("a"))

    assert len(writing(scenario, POST=answer, PATCH=answer).requests) == 2
    assert "Record not written" in caplog.text


def test_a_record_is_written_again_after_an_unanswered_request_although_nothing_has_changed() -> None:
    """The move in the unanswered request is not made, so the next leader must not read it."""

    async def scenario(writer: RecordWriter) -> None:
        writer.begin([FoundStatus("uid-all", PolicyStatus(), NOTHING)])
        assert not await writer.write(ALL, moves("a"))
        stub.on("PATCH", "", answering({}))
        assert await writer.write(ALL, NOTHING)

    stub = StubApiServer()
    writing(scenario, stub=stub, PATCH=dropping)
    assert [decode_record(body["record"]) for body in stub.bodies] == [moves("a"), NOTHING]


def test_a_replica_that_no_longer_leads_writes_no_record() -> None:
    async def scenario(writer: RecordWriter) -> None:
        assert not await writer.write(ALL, moves("a"))

    assert writing(scenario, exclusive_seconds=0.0).requests == []


def test_a_record_that_is_too_long_is_not_written() -> None:
    many = Recorded(moves_in_flight=tuple(move(f"{'u' * 4000}{number}") for number in range(500)))

    async def scenario(writer: RecordWriter) -> None:
        assert len(encode_record(many)) > MAX_RECORD_LENGTH
        assert not await writer.write(ALL, many)

    assert writing(scenario).requests == []


DEEP = "[" * 5_000 + "]" * 5_000


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "{",
        "[]",
        "null",
        '{"movesInFlight": 3}',
        '{"movesInFlight": [{}]}',
        DEEP,
        "[" * 5_000,
        f'{{"backOffs": {DEEP}, "failuresInARow": {{"pauses": {DEEP}}}}}',
    ],
    ids=lambda text: str(text)[:30],
)
def test_an_unreadable_record_is_read_as_an_empty_one(text: object) -> None:
    assert decode_record(text) == NOTHING


def test_a_record_is_joined_with_the_checkpoint_in_the_status() -> None:
    def back_off(failures: int) -> RememberedBackOff:
        return RememberedBackOff(group="g", failures=failures, until=NOW, situation="s")

    record = Recorded(moves_in_flight=(move("a"), move("b")), back_offs=(back_off(1),))
    paused = FailuresInARow(pauses=2, paused_until=NOW)
    record = msgspec.structs.replace(record, failures_in_a_row=paused)
    failures = FailuresInARow(workloads=("Deployment/web in shop",), pauses=1)
    former = Recorded(moves_in_flight=(move("b"), move("c")), back_offs=(back_off(3),), failures_in_a_row=failures)
    joined = with_former(record, former)
    assert [each.uid for each in joined.moves_in_flight] == ["a", "b", "c"]
    assert joined.back_offs == (back_off(3),)
    assert joined.failures_in_a_row == FailuresInARow(
        workloads=failures.workloads, pauses=2, paused_until=NOW
    )  # no pause ends early
    assert with_former(record, NOTHING) == record


def listed(*items: object) -> Answering:
    return answering({"metadata": {}, "items": list(items)})


def served(*kinds: Kind) -> Answering:
    return answering({"kind": "APIResourceList", "resources": [{"name": kind.resource} for kind in kinds]})


REFUSED = answering({"message": "no"}, status=403)
RECORD_OF_ALL, RECORD_OF_OWN = RECORDS[CLUSTER_POLICIES], RECORDS[NAMESPACED_POLICIES]


class Leading:
    """A writer that begins to lead, and its API server."""

    def __init__(self) -> None:
        self.stub = StubApiServer()
        self.seconds = 100.0
        self.seen: dict[str, PolicyStatus] = {}
        self.policies: dict[Kind, dict[str, Any]] = {
            CLUSTER_POLICIES: {"metadata": {"name": "all", "uid": "uid-all"}, "status": {}},
            NAMESPACED_POLICIES: {"metadata": {"name": "own", "namespace": "shop", "uid": "uid-own"}, "status": {}},
        }
        for kind, policy in self.policies.items():
            self.stub.on("GET", kind.path, listed(policy))
            self.stub.on("GET", RECORDS[kind].path, listed())
        self.stub.on("POST", "records", answering({}, status=201))
        self.stub.on("PATCH", "/status", answering({}))
        self.stub.on("PATCH", "", answering({}))

    def lack_records(self, *, refuse: bool) -> None:
        """Answer as an API server without the CRDs of records."""
        for kind in POLICY_KINDS:
            self.stub.on("GET", RECORDS[kind].path, REFUSED if refuse else answering({}, status=404))
        self.stub.on("GET", GROUP, served(*POLICY_KINDS))

    def run(self, scenario: Callable[[StatusWriter], Awaitable[None]], *, records_in_status: bool = False) -> None:
        """Let a writer begin to lead, and run a scenario with it."""

        async def serve() -> None:
            async with self.stub.running() as requests:
                writer = StatusWriter(
                    requests,
                    ExclusiveRequests(requests, lambda: self.seconds, lambda: 10.0),
                    lambda: self.seconds,
                    remembering=lambda _, status: status,
                    records_in_status=records_in_status,
                )
                found = await writer.read()
                writer.begin(found)
                self.stub.requests.clear()
                self.stub.bodies.clear()
                self.seen = {name: each.status for name, each in found.policies.items()}
                await scenario(writer)

        asyncio.run(serve())

    async def write(self, writer: StatusWriter, **recorded: Recorded) -> None:
        """Write the statuses unchanged with these records of policies."""
        for policy in (ALL, OWN):
            if (record := recorded.get(policy.object_name)) is not None:
                self.seen[policy.name] = with_record(self.seen[policy.name], record)
        await writer.write(Wanted(policy, self.seen[policy.name], PolicyStatus()) for policy in (ALL, OWN))

    def moves(self, policy: str) -> list[str]:
        return [each.uid for each in self.seen[policy].moves_in_flight]


def test_a_new_leader_moves_the_checkpoint_from_the_status_into_the_record() -> None:
    leading = Leading()
    leading.policies[CLUSTER_POLICIES]["status"] = json.loads(encode_record(moves("a")))
    leading.policies[NAMESPACED_POLICIES]["status"] = {"summary": {"evicted": 7}}
    of_own = {"metadata": {"name": "uid-own", "namespace": "shop"}, "record": encode_record(moves("b"))}
    leading.stub.on("GET", RECORD_OF_OWN.path, listed(of_own))

    async def scenario(writer: StatusWriter) -> None:
        assert (leading.moves("all"), leading.moves("shop/own")) == (["a"], ["b"])
        assert leading.seen["shop/own"].summary == Summary(evicted=7)
        await leading.write(writer)
        await leading.write(writer)

    leading.run(scenario)
    # The record is written first, then the status without it. The policy with a record needs no write.
    assert leading.stub.requests == [
        ("POST", f"{GROUP}/clusterrebalancepolicyrecords"),
        ("PATCH", f"{GROUP}/clusterrebalancepolicies/all/status"),
    ]
    assert decode_record(leading.stub.bodies[0]["record"]) == moves("a")
    assert leading.stub.bodies[1]["status"]["movesInFlight"] is None


def test_a_record_of_another_policy_or_namespace_is_ignored() -> None:
    leading = Leading()
    records = [
        {"metadata": {"name": name, "namespace": namespace}, "record": encode_record(moves("x"))}
        for name, namespace in (("uid-gone", "shop"), ("uid-own", "elsewhere"), ("uid-all", "shop"))
    ]
    leading.stub.on("GET", RECORD_OF_OWN.path, listed(*records))

    async def scenario(_: StatusWriter) -> None:
        assert (leading.moves("all"), leading.moves("shop/own")) == ([], [])

    leading.run(scenario)


@pytest.mark.parametrize("refuse", [False, True], ids=["not found", "forbidden"])
def test_without_the_crds_of_records_the_status_contains_the_checkpoint(
    *, refuse: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leading = Leading()
    leading.lack_records(refuse=refuse)
    leading.policies[CLUSTER_POLICIES]["status"] = json.loads(encode_record(moves("a")))

    async def scenario(writer: StatusWriter) -> None:
        assert leading.moves("all") == ["a"]
        await leading.write(writer, all=moves("a", "b"))
        assert await writer.ensure([(ALL, PolicyStatus())]) == {"all"}

    leading.run(scenario)
    assert leading.stub.requests == [("PATCH", f"{GROUP}/clusterrebalancepolicies/all/status")]
    assert [each["uid"] for each in leading.stub.bodies[0]["status"]["movesInFlight"]] == ["a", "b"]
    assert "clusterrebalancepolicyrecords.respread.dev is not installed" in caplog.text
    assert "kubectl apply" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [served(*POLICY_KINDS, *RECORDS.values()), served(), answering({"message": "no"}, status=500), dropping],
    ids=["served", "no policies either", "no answer", "no connection"],
)
def test_a_replica_that_can_not_read_records_does_not_take_over(answer: Answering) -> None:
    leading = Leading()
    leading.stub.on("GET", RECORD_OF_ALL.path, REFUSED)
    leading.stub.on("GET", GROUP, answer)

    async def scenario(_: StatusWriter) -> None:
        pytest.fail("it began")

    with pytest.raises(ListError, match="clusterrebalancepolicyrecords"):
        leading.run(scenario)


def test_the_checkpoint_moves_into_records_once_their_crds_are_installed() -> None:
    leading = Leading()
    leading.lack_records(refuse=False)
    leading.policies[CLUSTER_POLICIES]["status"] = json.loads(encode_record(moves("a")))

    async def scenario(writer: StatusWriter) -> None:
        await leading.write(writer)
        assert leading.stub.requests == []
        for answer, expected in (
            (answering({"message": "no"}, status=500), 1),  # unknown, so the checkpoint stays in the status
            (served(*POLICY_KINDS), 2),
            (served(*POLICY_KINDS, *RECORDS.values()), 6),
        ):
            leading.stub.on("GET", GROUP, answer)
            leading.seconds += LOOK_AGAIN_SECONDS
            await leading.write(writer)
            assert len(leading.stub.requests) == expected
        leading.seconds += LOOK_AGAIN_SECONDS
        await leading.write(writer)

    leading.run(scenario)
    sent = dict(zip(leading.stub.requests, leading.stub.bodies, strict=True))
    created = ("POST", f"{GROUP}/clusterrebalancepolicyrecords")
    cleared = ("PATCH", f"{GROUP}/clusterrebalancepolicies/all/status")
    assert list(sent).index(created) < list(sent).index(cleared)
    assert decode_record(sent[created]["record"]) == moves("a")
    assert sent[cleared]["status"]["movesInFlight"] is None


def test_without_their_crds_records_move_into_the_status_and_back(caplog: pytest.LogCaptureFixture) -> None:
    """The CRDs are deleted while a replica leads, and applied again."""
    leading = Leading()
    status = f"{GROUP}/clusterrebalancepolicies/all/status"
    gone = answering({"message": "not found"}, status=404)

    async def scenario(writer: StatusWriter) -> None:
        await leading.write(writer, all=moves("a"))
        assert leading.stub.requests == [("POST", f"{GROUP}/clusterrebalancepolicyrecords")]
        leading.stub.on("PATCH", "", gone)
        leading.stub.on("POST", "records", gone)
        leading.stub.on("GET", GROUP, served(*POLICY_KINDS, RECORD_OF_OWN))
        leading.seconds += LEAST_INTERVAL_SECONDS
        await leading.write(writer, all=moves("a", "b"))
        assert "movesInFlight" not in leading.stub.bodies[-1].get("status", {})
        assert "404" in writer.trouble(ALL)
        leading.seconds += LEAST_INTERVAL_SECONDS
        await leading.write(writer)
        assert leading.stub.requests[-1] == ("PATCH", status)
        assert [each["uid"] for each in leading.stub.bodies[-1]["status"]["movesInFlight"]] == ["a", "b"]
        assert await writer.ensure([(ALL, PolicyStatus())]) == {"all"}
        assert (writer.trouble(ALL), writer.trouble(OWN)) == ("", "")
        leading.stub.on("POST", "records", answering({}, status=201))
        leading.stub.on("GET", GROUP, served(*POLICY_KINDS, *RECORDS.values()))
        leading.seconds += LOOK_AGAIN_SECONDS
        leading.stub.requests.clear()
        leading.stub.bodies.clear()
        await leading.write(writer)

    leading.run(scenario)
    assert "clusterrebalancepolicyrecords.respread.dev is not installed" in caplog.text
    assert "rebalancepolicyrecords.respread.dev is not installed" not in caplog.text.replace("clusterreb", "")
    written = list(zip(leading.stub.requests, leading.stub.bodies, strict=True))
    assert decode_record(dict(written)[("POST", f"{GROUP}/clusterrebalancepolicyrecords")]["record"]) == moves("a", "b")
    assert dict(written)[("PATCH", status)]["status"]["movesInFlight"] is None


def test_a_status_is_written_although_its_record_is_refused() -> None:
    """The status says why nothing is evicted. The checkpoint of an earlier version stays in it."""
    leading = Leading()
    leading.policies[CLUSTER_POLICIES]["status"] = json.loads(encode_record(moves("former")))
    leading.stub.on("POST", "records", REFUSED)

    async def scenario(writer: StatusWriter) -> None:
        seen = msgspec.structs.replace(leading.seen["all"], summary=Summary(violated=3))
        await writer.write([Wanted(ALL, seen, PolicyStatus())])
        assert [path for _, path in leading.stub.requests] == [
            f"{GROUP}/clusterrebalancepolicyrecords",
            f"{GROUP}/clusterrebalancepolicies/all/status",
        ]
        status = leading.stub.bodies[1]["status"]
        assert status["summary"]["violated"] == 3
        assert "movesInFlight" not in status
        assert writer.known(ALL, PolicyStatus()) == seen
        assert await writer.ensure([(ALL, PolicyStatus())]) == set()
        assert len(leading.stub.requests) == 3  # the record again, and not the status
        assert writer.trouble(ALL) == "the API server refused it: 403, no"

    leading.run(scenario)


def test_the_checkpoint_moves_back_into_the_status_before_a_downgrade() -> None:
    leading = Leading()
    of_all = {"metadata": {"name": "uid-all"}, "record": encode_record(moves("a"))}
    leading.stub.on("GET", RECORD_OF_ALL.path, listed(of_all))

    async def scenario(writer: StatusWriter) -> None:
        assert leading.moves("all") == ["a"]
        await leading.write(writer)
        await leading.write(writer)

    leading.run(scenario, records_in_status=True)
    assert leading.stub.requests == [("PATCH", f"{GROUP}/clusterrebalancepolicies/all/status")]
    assert [each["uid"] for each in leading.stub.bodies[0]["status"]["movesInFlight"]] == ["a"]


def test_the_first_checkpoint_leaves_no_status_empty() -> None:
    """A replica that finds no Lease would conclude from an empty status that no replica has led before."""
    leading = Leading()
    remembered = [moves("a"), moves("a", "b")]

    async def serve() -> None:
        async with leading.stub.running() as requests:
            writer = StatusWriter(
                requests,
                ExclusiveRequests(requests, lambda: 100.0, lambda: 10.0),
                lambda: 100.0,
                remembering=lambda _, status: with_record(status, remembered.pop(0)),
            )
            for _ in range(2):
                assert await writer.ensure([(ALL, PolicyStatus())]) == {"all"}

    asyncio.run(serve())
    records = f"{GROUP}/clusterrebalancepolicyrecords"
    assert leading.stub.requests == [
        ("POST", records),
        ("PATCH", f"{GROUP}/clusterrebalancepolicies/all/status"),
        ("PATCH", f"{records}/uid-all"),
    ]
    assert leading.stub.bodies[1]["status"]["summary"]["inFlight"] == 1
