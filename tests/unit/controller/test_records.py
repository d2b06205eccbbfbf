"""Records are written before moves are made, created if missing, and read by the next leader."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from respread.api.policy import ClusterPolicySpec, Policy, PolicySpec
from respread.api.record import MAX_RECORD_LENGTH, NOTHING, MoveInFlight, Recorded, decode_record, encode_record
from respread.api.status import PolicyStatus, Summary
from respread.cluster.decode.decoder import Kind
from respread.cluster.stores import CLUSTER_POLICIES, NAMESPACED_POLICIES, RECORDS
from respread.controller.records.status_writer import (
    LEAST_INTERVAL_SECONDS,
    ExclusiveRequests,
    FoundStatus,
    RecordWriter,
    StatusWriter,
    Wanted,
)
from respread.kube.listing import ListError
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


@asynccontextmanager
async def writing(**answers: Answering) -> AsyncIterator[tuple[RecordWriter, StubApiServer]]:
    """Run an API server with answers by method, and yield a writer and the server."""
    stub = StubApiServer()
    for method in ("POST", "PATCH"):
        stub.on(method, "", answers.get(method, answering({})))
    async with stub.running() as requests:
        yield RecordWriter(ExclusiveRequests(requests, lambda: 100.0, lambda: 10.0)), stub


async def test_a_record_is_created_once_owned_by_its_policy_and_then_replaced() -> None:
    async with writing() as (writer, stub):
        assert await writer.write(OWN, moves("a"))
        assert await writer.write(OWN, moves("a", "b"))
        assert await writer.write(OWN, moves("a", "b"))  # the record has not changed
        assert await writer.write(ALL, NOTHING)  # there is no record, and none is needed
    records = f"{GROUP}/namespaces/shop/rebalancepolicyrecords"
    assert stub.requests == [("POST", records), ("PATCH", f"{records}/uid-own")]
    made, changed = stub.bodies
    assert made["metadata"]["name"] == "uid-own"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("RebalancePolicy", "own", "uid-own")
    assert decode_record(made["record"]) == moves("a")
    assert changed.keys() == {"record"}
    assert decode_record(changed["record"]) == moves("a", "b")


@pytest.mark.parametrize(
    ("known", "status", "asked"), [(moves("a"), 404, ["PATCH", "POST"]), (None, 409, ["POST", "PATCH"])]
)
async def test_a_record_is_written_whether_it_was_deleted_or_an_unanswered_request_has_made_it(
    known: Recorded | None, status: int, asked: list[str]
) -> None:
    async with writing(**{asked[0]: answering({"message": "no"}, status=status)}) as (writer, stub):
        writer.begin([FoundStatus("uid-all", PolicyStatus(), known)])
        assert await writer.write(ALL, moves("a", "b"))
        assert writer.is_stored(ALL, moves("a", "b"))
    assert [method for method, _ in stub.requests] == asked


@pytest.mark.parametrize(
    "answer", [answering({"message": "no"}, status=500), answering({"message": "no"}, status=403), dropping]
)
async def test_a_record_whose_write_was_not_confirmed_is_written_again(
    answer: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    async with writing(POST=answer, PATCH=answer) as (writer, stub):
        assert not await writer.write(ALL, moves("a"))
        assert not writer.is_stored(ALL, moves("a"))
        assert not await writer.write(ALL, moves("a"))
    assert len(stub.requests) == 2
    assert "Record not written" in caplog.text


@pytest.mark.parametrize("lost", [dropping, answering({"message": "etcd timed out"}, status=500)])
async def test_a_record_is_written_again_after_an_unanswered_request_although_nothing_has_changed(
    lost: Answering,
) -> None:
    """The move in the unanswered request is not made, so the next leader must not read it."""
    async with writing(PATCH=lost) as (writer, stub):
        writer.begin([FoundStatus("uid-all", PolicyStatus(), moves("a"))])
        assert not await writer.write(ALL, moves("a", "b"))
        stub.on("PATCH", "", answering({}))
        assert await writer.write(ALL, moves("a"))
    assert [decode_record(body["record"]) for body in stub.bodies] == [moves("a", "b"), moves("a")]


async def test_a_record_that_is_too_long_is_not_written() -> None:
    many = Recorded(moves_in_flight=tuple(move(f"{'u' * 4000}{number}") for number in range(500)))
    async with writing() as (writer, stub):
        assert len(encode_record(many)) > MAX_RECORD_LENGTH
        assert not await writer.write(ALL, many)
    assert stub.requests == []


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


GOLDEN = Path(__file__).parents[2] / "golden" / "record.json"


def test_the_record_of_the_golden_version_is_read_in_full() -> None:
    """tests/golden/crds/README.md says when the golden version changes."""
    text = GOLDEN.read_text(encoding="utf-8")
    assert json.loads(text).keys() == {field.encode_name for field in msgspec.structs.fields(Recorded)}
    assert json.loads(encode_record(decode_record(text))) == json.loads(text)


def test_fields_of_a_later_version_in_a_record_are_left_out() -> None:
    """An operator may be downgraded while moves are in flight."""
    later = json.loads(encode_record(moves("a")))
    later["movesInFlight"][0]["later"] = {"of": "the move"}
    assert decode_record(json.dumps({**later, "later": [1]})) == moves("a")


def listed(*items: object) -> Answering:
    return answering({"metadata": {}, "items": list(items)})


REFUSED = answering({"message": "no"}, status=403)
RECORD_OF_ALL, RECORD_OF_OWN = RECORDS[CLUSTER_POLICIES], RECORDS[NAMESPACED_POLICIES]


class Leading:
    """A writer that begins to lead, and its API server."""

    def __init__(self) -> None:
        self.stub = StubApiServer()
        self.seconds = 100.0
        self.found: dict[str, FoundStatus] = {}
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

    @asynccontextmanager
    async def running(self) -> AsyncIterator[StatusWriter]:
        """Let a writer begin to lead, and yield it."""
        async with self.stub.running() as requests:
            writer = StatusWriter(
                requests,
                ExclusiveRequests(requests, lambda: self.seconds, lambda: 10.0),
                lambda: self.seconds,
                completed=lambda _, record: record,
            )
            self.found = await writer.read()
            writer.begin(self.found.values())
            self.stub.requests.clear()
            self.stub.bodies.clear()
            yield writer

    async def write(self, writer: StatusWriter, record: Recorded) -> None:
        """Write the status of the cluster's policy unchanged, and a record."""
        await writer.write([Wanted(ALL, self.found["all"].status, record, PolicyStatus())], self.seconds)


async def test_a_new_leader_reads_statuses_and_records_and_writes_only_what_differs() -> None:
    leading = Leading()
    leading.policies[NAMESPACED_POLICIES]["status"] = {"summary": {"evicted": 7}}
    of_own = {"metadata": {"name": "uid-own", "namespace": "shop"}, "record": encode_record(moves("b"))}
    leading.stub.on("GET", RECORD_OF_OWN.path, listed(of_own))
    async with leading.running() as writer:
        own = leading.found["shop/own"]
        assert (own.record, leading.found["all"].record) == (moves("b"), None)
        assert own.status.summary == Summary(evicted=7)
        assert list(writer.records) == [moves("b")]
        await writer.write(
            [
                Wanted(OWN, own.status, moves("b"), PolicyStatus()),
                Wanted(ALL, leading.found["all"].status, moves("a"), PolicyStatus()),
            ],
            leading.seconds,
        )
    assert leading.stub.requests == [("POST", f"{GROUP}/clusterrebalancepolicyrecords")]


async def test_a_record_of_another_policy_or_namespace_is_ignored() -> None:
    leading = Leading()
    records = [
        {"metadata": {"name": name, "namespace": namespace}, "record": encode_record(moves("x"))}
        for name, namespace in (("uid-gone", "shop"), ("uid-own", "elsewhere"), ("uid-all", "shop"))
    ]
    leading.stub.on("GET", RECORD_OF_OWN.path, listed(*records))
    async with leading.running():
        assert [each.record for each in leading.found.values()] == [None, None]


@pytest.mark.parametrize("answer", [REFUSED, answering({}, status=404)], ids=["forbidden", "no definition"])
async def test_a_replica_that_can_not_read_records_does_not_take_over(answer: Answering) -> None:
    leading = Leading()
    leading.stub.on("GET", RECORD_OF_ALL.path, answer)

    with pytest.raises(ListError, match="clusterrebalancepolicyrecords"):
        async with leading.running():
            pytest.fail("it began")


async def test_records_are_written_again_once_their_deleted_crds_are_applied_again() -> None:
    leading = Leading()
    gone = answering({"message": "not found"}, status=404)
    async with leading.running() as writer:
        await leading.write(writer, moves("a"))
        leading.stub.on("PATCH", "", gone)
        leading.stub.on("POST", "records", gone)
        leading.seconds += LEAST_INTERVAL_SECONDS
        await leading.write(writer, moves("a", "b"))
        assert "404" in writer.trouble(ALL)
        assert await writer.ensure([(ALL, PolicyStatus())]) == set()
        leading.stub.on("POST", "records", answering({}, status=201))
        leading.seconds += LEAST_INTERVAL_SECONDS
        await leading.write(writer, moves("a", "b"))
        assert writer.trouble(ALL) == ""
    sent = zip(leading.stub.requests, leading.stub.bodies, strict=True)
    *_, created = (body for (method, _), body in sent if method == "POST")
    assert decode_record(created["record"]) == moves("a", "b")


async def test_a_status_is_written_although_its_record_is_refused() -> None:
    """The status says why nothing is evicted."""
    leading = Leading()
    leading.stub.on("POST", "records", REFUSED)
    async with leading.running() as writer:
        status = msgspec.structs.replace(leading.found["all"].status, summary=Summary(violated=3))
        await writer.write([Wanted(ALL, status, moves("a"), PolicyStatus())], leading.seconds)
        assert [path for _, path in leading.stub.requests] == [
            f"{GROUP}/clusterrebalancepolicyrecords",
            f"{GROUP}/clusterrebalancepolicies/all/status",
        ]
        assert leading.stub.bodies[1]["status"]["summary"]["violated"] == 3
        assert writer.known(ALL, PolicyStatus()) == status
        leading.seconds += LEAST_INTERVAL_SECONDS
        await writer.write([Wanted(ALL, status, moves("a"), PolicyStatus())], leading.seconds)
        assert len(leading.stub.requests) == 3  # the record again, and not the status
        assert writer.trouble(ALL) == "the API server refused it: 403, no"


async def test_the_first_record_leaves_no_status_empty() -> None:
    """A replica that finds no Lease would conclude from an empty status that no replica has led before."""
    leading = Leading()
    remembered = [moves("a"), moves("a", "b")]
    async with leading.stub.running() as requests:
        writer = StatusWriter(
            requests,
            ExclusiveRequests(requests, lambda: 100.0, lambda: 10.0),
            lambda: 100.0,
            completed=lambda *_: remembered.pop(0),
        )
        for _ in range(2):
            assert await writer.ensure([(ALL, PolicyStatus())]) == {"all"}
    records = f"{GROUP}/clusterrebalancepolicyrecords"
    assert leading.stub.requests == [
        ("POST", records),
        ("PATCH", f"{GROUP}/clusterrebalancepolicies/all/status"),
        ("PATCH", f"{records}/uid-all"),
    ]
    assert leading.stub.bodies[1]["status"]["summary"]["inFlight"] == 1
