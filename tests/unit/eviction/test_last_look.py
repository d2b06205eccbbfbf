"""Whether a controller wants a replacement of a pod that is leaving or gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from respread.api.policy import VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.eviction.owners.last_look import MOST_REMEMBERED, Owners, TopOwners
from respread.kube.requests import NoResponseError, Response
from respread.moves.ledger import Ledger
from tests.eviction_moves import SPEC, move
from tests.fake_requests import FakeRequests
from tests.worlds import NOW, cluster, pod


class Server(FakeRequests):
    """An API server with one controller."""

    def __init__(self, status_code: int = 200, uid: str = "uid-web", **fields: Any) -> None:
        super().__init__()
        self.status_code = status_code
        self.body = {"metadata": {"name": "web", "uid": uid, **fields.pop("metadata", {})}, "spec": fields}

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        assert (method, path.rpartition("/")[2], options["body"]) == ("GET", "{name}", None)
        assert names == {"namespace": "default", "name": "web"}
        if not self.status_code:
            raise NoResponseError("the line is dead", sent=True)
        return Response(status_code=self.status_code, body=json.dumps(self.body).encode())


def owned(name: str, kind: str = "ReplicaSet", **fields: Any) -> Pod:
    return pod(name, "node-1", SPEC, controller=OwnerReference("apps/v1", kind, "web", "uid-web"), **fields)


def wants(server: Server, gone: Pod, *others: Pod) -> bool:
    owners = Owners(server, lambda: 0.0)
    return asyncio.run(owners.wants_replacement(gone, cluster([], [gone, *others])))


OTHERS = [owned("web-1"), owned("web-2"), owned("web-3", deletion_timestamp=NOW), owned("web-4", phase="Failed")]


@pytest.mark.parametrize(
    ("server", "is_wanted"),
    [
        (Server(replicas=3), True),
        (Server(replicas=2), False),
        (Server(replicas=0), False),
        (Server(replicas=3, metadata={"deletionTimestamp": "2026-11-21T09:00:00Z"}), False),
        (Server(404), False),
        (Server(uid="another", replicas=3), False),
        (Server(500), True),  # it is not known
        (Server(403), True),
        (Server(0), True),
    ],
)
def test_a_replacement_is_wanted_while_there_are_fewer_pods_than_replicas(server: Server, *, is_wanted: bool) -> None:
    assert wants(server, owned("web-0"), *OTHERS) is is_wanted


@pytest.mark.parametrize(("ordinal", "is_wanted"), [(4, False), (5, True), (7, True), (8, False)])
def test_a_pod_of_a_stateful_set_is_wanted_by_its_ordinal(ordinal: int, *, is_wanted: bool) -> None:
    server = Server(replicas=3, ordinals={"start": 5})
    assert wants(server, owned(f"web-{ordinal}", "StatefulSet")) is is_wanted


@pytest.mark.parametrize("kind", ["DaemonSet", "Job", "Node"])
def test_no_replacement_comes_from_a_controller_that_makes_none(kind: str) -> None:
    assert not wants(Server(replicas=3), owned("web-0", kind))
    assert not wants(Server(replicas=3), pod("web-0", "node-1", SPEC, controller=None))


@pytest.mark.parametrize(("kind", "reason"), [("", Reason.BARE_POD), ("Job", Reason.UNKNOWN_REPLACEMENT)])
def test_a_pod_that_nothing_replaces_is_held_before_anything_is_read(kind: str, reason: Reason) -> None:
    victim = owned("web-0", kind) if kind else pod("web-0", "node-1", SPEC, controller=None)
    owners = Owners(FakeRequests(), lambda: 0.0)
    held = asyncio.run(owners.why_not_at_rest(move(victim), VictimRules(), cluster([], [victim]), Ledger()))
    assert (held and held.reason) is reason


def test_moves_that_were_planned_together_share_what_is_read_and_others_read_again() -> None:
    asked: list[str] = []

    class Refusing(FakeRequests):
        async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
            asked.append(f"{method} {path} {names} {options}")
            return Response(status_code=500, body=b"")

    victim, rules, owners = owned("web-0"), VictimRules(), Owners(Refusing(), lambda: 0.0)
    for each, is_read in ((owners, True), (owners, False), (owners.without_readings(), True)):
        asked.clear()
        assert asyncio.run(each.why_not_at_rest(move(victim), rules, cluster([], [victim]), Ledger())) is not None
        assert bool(asked) is is_read
        assert not any("replicasets" in each for each in asked), "what the namespace admits is read first"


def test_the_owners_of_those_controllers_are_known_that_were_read_last() -> None:
    top, deployment = TopOwners(), OwnerReference("apps/v1", "Deployment", "web", "uid-deployment")
    for number in (*range(MOST_REMEMBERED), 0, MOST_REMEMBERED):
        top.note(f"uid-{number}", deployment)
    top.note("uid-1", None)
    for number, is_known in ((0, True), (1, False), (2, True), (MOST_REMEMBERED, True)):
        owner = OwnerReference("apps/v1", "ReplicaSet", "web", f"uid-{number}")
        assert top.of(pod("web-0", "node-1", SPEC, controller=owner)) == (deployment if is_known else owner)
    assert top.of(pod("web-0", "node-1", SPEC, controller=None)) is None
