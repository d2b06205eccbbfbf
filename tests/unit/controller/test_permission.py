"""The reasons that hold a move at the last moment, and how the policies' versions are read, which are one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from aiohttp import web
from immutables import Map

from respread.api.fields import LabelSelector, Problem
from respread.api.policy import ClusterPolicySpec, Limits, Policy, PolicySpec, Window
from respread.api.reasons import Held, Reason
from respread.cluster.decode.decoder import Kind
from respread.cluster.stores import CLUSTER_POLICIES, NAMESPACED_POLICIES, POLICY_KINDS
from respread.controller.permission import (
    AT_ONCE,
    CONFIRM_SECONDS,
    CONFIRMED_SECONDS,
    EVERYWHERE,
    MOST_POLICIES,
    OLD_SECONDS,
    Confirmations,
    Leading,
    Permission,
    PolicyVersions,
    read_versions,
    versions_of,
)
from respread.kube.listing import ListError
from respread.planning.plan import Move
from tests.integration.stub_api_server import Answering, StubApiServer, answering, dropping
from tests.plans import plan_cluster
from tests.worlds import NOW, cluster, constraint, node, pods, spec


def policy(name: str = "default", **fields: Any) -> Policy:
    return Policy(
        kind="ClusterRebalancePolicy", object_name=name, spec=ClusterPolicySpec(**{"mode": "Enforce", **fields})
    )


ENFORCES = policy()
WRONG = msgspec.structs.replace(ENFORCES, problems=(Problem("spec.windows[0].timeZone", "there is no such zone"),))
AT_NIGHT = msgspec.structs.replace(
    ENFORCES,
    spec=ClusterPolicySpec(
        mode="Enforce", windows=(Window(schedule="0 2 * * *", duration=timedelta(hours=1), time_zone="UTC"),)
    ),
)


async def read_nothing(place: str) -> PolicyVersions:
    raise AssertionError(place)


class Inputs:
    """The inputs of a permission."""

    def __init__(self) -> None:
        self.leads = True
        self.policies = Map({"default": ENFORCES})
        self.seconds = 100.0
        self.term = 1
        self.confirmations = Confirmations(read_nothing, lambda: self.seconds)
        self.permission = self.make_permission()
        self.planned = self.permission.planned_for(self.policies, self.seconds)
        self.confirm()

    def make_permission(self) -> Permission:
        """Return a permission without confirmations."""
        return Permission(
            Leading(lambda: self.leads, lambda: self.term),
            lambda: self.policies,
            self.confirmations,
            clock=lambda: self.seconds,
            now=lambda: NOW,
        )

    def confirm(self) -> None:
        """Confirm that the API server has the known policies."""
        for place in (EVERYWHERE, "default", "shop"):
            there = Map({name: each for name, each in self.policies.items() if each.namespace == place})
            self.confirmations.note(place, PolicyVersions(versions_of(there), self.seconds))

    def reason(self, move: Move) -> Reason | None:
        held = self.permission.why_not(move, self.planned)
        return None if held is None else held.reason


@pytest.fixture
def move() -> Move:
    snapshot = cluster([node("a1", "a"), node("b1", "b")], pods({"a1": 2}, spec(constraint())))
    (move,) = plan_cluster(snapshot, [ENFORCES], now=NOW).moves
    return move


def test_a_replica_that_is_not_the_leader_or_was_not_in_between_or_is_stopping_makes_no_move(move: Move) -> None:
    """Another replica may have led in between, and evicted pods of the same groups."""
    inputs = Inputs()
    for inputs.leads, inputs.term in ((False, 1), (True, 2)):
        assert inputs.reason(move) is Reason.NOT_LEADING
    inputs.term = 1
    assert inputs.reason(move) is None
    inputs.permission.stop()
    assert inputs.reason(move) is Reason.NOT_LEADING


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ([], Reason.NOT_SELECTED),
        ([WRONG], Reason.INVALID_POLICY),
        ([policy(mode="DryRun")], Reason.DRY_RUN),
        ([AT_NIGHT], Reason.WINDOW_CLOSED),
        ([policy(pod_selector=LabelSelector(match_labels=Map(app="another")))], Reason.IN_MOTION),
        ([policy(limits=Limits(in_flight=1))], Reason.IN_MOTION),
        ([ENFORCES, policy("other")], Reason.IN_MOTION),
        ([policy()], None),  # equal, but not the same object
    ],
)
def test_a_changed_or_new_policy_holds_the_rest_of_the_wave(
    move: Move, now: list[Policy], reason: Reason | None
) -> None:
    inputs = Inputs()
    inputs.policies = Map({each.name: each for each in now})
    assert inputs.reason(move) is reason


def test_a_wave_that_takes_too_long_is_planned_again(move: Move) -> None:
    inputs = Inputs()
    inputs.seconds += OLD_SECONDS
    inputs.confirm()
    assert inputs.reason(move) is None
    inputs.seconds += 0.1
    assert inputs.reason(move) is Reason.IN_MOTION


def test_nothing_is_evicted_for_policies_that_were_not_confirmed_recently(move: Move) -> None:
    inputs = Inputs()
    inputs.seconds += CONFIRMED_SECONDS
    assert inputs.reason(move) is None
    inputs.seconds += 0.1
    held = inputs.permission.why_not(move, inputs.planned)
    assert held is not None
    assert (held.reason, held.message) == (Reason.API_UNAVAILABLE, "the policies could not be read for 5 s")
    inputs.confirmations = Confirmations(read_nothing, lambda: inputs.seconds)
    fresh = inputs.make_permission()
    assert fresh.why_not(move, fresh.planned_for(inputs.policies, inputs.seconds)) == Held(
        Reason.API_UNAVAILABLE, "the policies could not be read yet"
    )


def test_one_line_tells_that_nothing_is_evicted_until_the_reason_changes(
    move: Move, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = Inputs()
    told = []
    for seconds, generation in ((6, 1), (1, 1), (0, 2), (0, 1), (6, 1), (0, 0), (6, 0)):
        inputs.seconds += seconds
        if not seconds:
            there = Map({"default": msgspec.structs.replace(ENFORCES, generation=generation)})
            inputs.confirmations.note(EVERYWHERE, PolicyVersions(versions_of(there), inputs.seconds))
            inputs.confirmations.note("default", PolicyVersions(Map(), inputs.seconds))
        inputs.reason(move)
        told.append(caplog.text.count("Nothing is evicted for now"))
    assert told == [1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize(
    "there",
    [
        Map(),
        Map({"default": msgspec.structs.replace(ENFORCES, generation=2)}),
        Map({"default": msgspec.structs.replace(ENFORCES, uid="another")}),
        Map({"default": ENFORCES, "other": policy("other")}),
    ],
    ids=["deleted", "changed", "recreated", "another one"],
)
def test_the_api_servers_answer_counts_although_the_watch_is_silent(move: Move, there: Map[str, Policy]) -> None:
    inputs = Inputs()
    inputs.confirmations.note(EVERYWHERE, PolicyVersions(versions_of(there), inputs.seconds))
    assert inputs.reason(move) is Reason.IN_MOTION


def own(namespace: str, name: str = "own", generation: int = 1) -> Policy:
    spec = PolicySpec(mode="DryRun")
    return Policy(kind="RebalancePolicy", namespace=namespace, object_name=name, generation=generation, spec=spec)


def test_a_new_policy_of_a_namespace_holds_only_moves_in_that_namespace(move: Move) -> None:
    inputs = Inputs()
    assert inputs.permission.planned_for(inputs.policies, 0.0).by_place is inputs.planned.by_place, "worked out once"
    for number in range(3):
        inputs.policies = inputs.policies.set(f"shop/{number}", own("shop", str(number)))
        assert inputs.reason(move) is None
    inputs.policies = inputs.policies.set("default/own", own("default"))
    assert inputs.reason(move) is Reason.IN_MOTION


def test_the_api_servers_answer_for_the_pods_namespace_counts_too(move: Move) -> None:
    inputs = Inputs()
    unseen = Map({"shop/own": own("shop")})
    inputs.confirmations.note("shop", PolicyVersions(versions_of(unseen), inputs.seconds))
    assert inputs.reason(move) is None
    unseen = Map({"default/own": own("default")})
    inputs.confirmations.note("default", PolicyVersions(versions_of(unseen), inputs.seconds))
    held = inputs.permission.why_not(move, inputs.planned)
    assert held == Held(Reason.IN_MOTION, "the policies of default have changed, and the watch has not brought it yet")


def item(name: str, generation: int, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


def listed(*items: dict[str, Any], rest: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7", **({"continue": rest} if rest else {})}, "items": list(items)}


async def read(
    answer: Answering, *, namespace: str = EVERYWHERE, kinds: Iterable[Kind] = POLICY_KINDS
) -> PolicyVersions:
    """Read from an API server that answers for one namespace only."""
    stub = StubApiServer()
    path = NAMESPACED_POLICIES.path_in_namespace.format(namespace=namespace) if namespace else CLUSTER_POLICIES.path
    stub.on("GET", path, answer)
    async with stub.running() as requests:
        found = await read_versions(requests, lambda: 5.0, namespace, kinds=kinds)
    assert {asked for _, asked in stub.requests} <= {path}  # no other path is requested
    return found


async def test_cluster_and_namespaced_policies_are_read_separately_with_full_names() -> None:
    known = msgspec.structs.replace(policy("all"), uid="uid-all", generation=3)
    assert await read(answering(listed(item("all", 3)))) == PolicyVersions(versions_of(Map({"all": known})), 5.0)
    own = await read(answering(listed(item("own", 1, "shop"))), namespace="shop")
    assert own == PolicyVersions(Map({"shop/own": ("uid-own", 1)}), 5.0)
    none = await read(answering({"metadata": {"resourceVersion": "7"}, "items": None}), namespace="shop")
    assert none == PolicyVersions(Map(), 5.0)


async def test_a_kind_that_is_ignored_is_not_requested() -> None:
    assert await read(dropping, namespace="shop", kinds=(CLUSTER_POLICIES,)) == PolicyVersions(Map(), 5.0)


async def test_too_many_policies_are_not_read_at_all() -> None:
    pages: list[int] = []

    async def endless(request: web.Request) -> web.StreamResponse:
        limit = int(request.query["limit"])
        pages.append(limit)
        found = [item(f"own-{len(pages)}-{number}", 1, "shop") for number in range(limit)]
        return web.json_response(listed(*found, rest="token"))

    with pytest.raises(ListError, match=f"there are more than {MOST_POLICIES} in shop"):
        await read(endless, namespace="shop")
    assert (sum(pages), len(pages)) == (MOST_POLICIES, 40)
    assert max(pages) * 256 * 1024 < 10 * 2**20  # the annotations of a page, which tenants write


async def test_only_metadata_is_requested_and_all_pages_are_read() -> None:
    async def pages(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept"].startswith("application/json;as=PartialObjectMetadataList;")
        is_first = "continue" not in request.query
        assert request.query["limit"] == "500", "as client-go asks"
        return web.json_response(listed(*most, rest="token") if is_first else listed(item("last", 1)))

    most = [item(f"cluster-{number}", 1) for number in range(MOST_POLICIES)]  # which only a namespace may not have
    assert len((await read(pages)).versions) == MOST_POLICIES + 1


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (dropping, "did not answer"),
        (answering("no JSON"), "clusterrebalancepolicies can't be listed: the answer is not a list"),
        (
            answering({"metadata": {}, "items": [{"metadata": {}}]}),
            "clusterrebalancepolicies can't be listed: .* not a list of them: .* `name`",
        ),
        (answering({"message": "forbidden"}, status=403), "can't be listed: 403, forbidden"),
    ],
)
async def test_a_malformed_answer_is_an_error(cluster: Answering, words: str) -> None:
    with pytest.raises(ListError, match=words):
        await read(cluster)


QUICK_SECONDS = 0.05


class Reader:
    """Takes a given number of seconds to read the policies of some namespaces, and little for all others."""

    def __init__(self, slow: dict[str, float]) -> None:
        self._slow = slow
        self._now = self.most = 0

    async def read(self, namespace: str) -> PolicyVersions:
        asked_at = asyncio.get_running_loop().time()
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(self._slow.get(namespace, QUICK_SECONDS))
        finally:
            self._now -= 1
        return PolicyVersions(Map(), asked_at)


async def oldest_answer(reader: Reader, places: list[str], seconds: int, after: int) -> dict[str, float]:
    """Ask for all places once a second, and return how old the answer of each ever was after a while."""
    clock = asyncio.get_running_loop().time
    confirmations, leading = Confirmations(reader.read, clock), Leading(lambda: True, lambda: 1)
    permission = Permission(leading, Map, confirmations, clock=clock, now=lambda: NOW)
    oldest: dict[str, float] = {}
    asking: set[asyncio.Task[None]] = set()
    for second in range(seconds):
        asking |= {asyncio.create_task(permission.confirm(place)) for place in places}
        await asyncio.sleep(1.0)
        for place in (EVERYWHERE, *(places if second >= after else ())):
            known = confirmations.of(place)
            age = clock() - (known.asked_at if known is not None else 0.0)
            oldest[place] = max(age, oldest.get(place, 0.0))
    await asyncio.gather(*asking)
    closed_at = clock()
    await permission.aclose()
    assert (clock() - closed_at < QUICK_SECONDS, len(asyncio.all_tasks())) == (True, 1), "no reading goes on"
    return oldest


@pytest.mark.virtual_time
@pytest.mark.parametrize(("number", "seconds"), [(40, 4.0), (AT_ONCE, 50.0)])
async def test_slow_namespaces_delay_neither_others_nor_the_cluster_policies(number: int, seconds: float) -> None:
    """A read that takes too long is cancelled, so that it gives its place to others."""
    reader = Reader(slow := {"shop": 2 * CONFIRM_SECONDS, **{f"slow-{each}": seconds for each in range(number)}})
    asyncio.get_running_loop().call_later(CONFIRM_SECONDS, slow.pop, "shop")  # which is quick from then on
    oldest = await oldest_answer(reader, list(slow), seconds=60, after=30)
    assert oldest["shop"] < CONFIRMED_SECONDS
    assert oldest[EVERYWHERE] < CONFIRMED_SECONDS
    assert reader.most <= 13


@pytest.mark.virtual_time
async def test_a_place_is_read_once_a_second() -> None:
    confirmations, asked = Confirmations(Reader({}).read, asyncio.get_running_loop().time), set[float]()
    for _ in range(10):
        await confirmations.refresh(["shop"])
        asked |= {answer.asked_at for answer in (confirmations.of("shop"),) if answer is not None}
        await asyncio.sleep(0.3)
    assert all(CONFIRM_SECONDS <= after - at < CONFIRMED_SECONDS for at, after in pairwise(sorted(asked)))
    assert len(asked) > 1
