"""One request lists the pods of several controllers; what callers get was read after their call, and ages from then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from respread.api.reasons import Held, Reason
from respread.cluster.meta import OwnerReference
from respread.eviction.owners.reading import (
    BatchReadings,
    ControllerObject,
    OwnerReading,
    PodLists,
    PodsOfController,
    read_owner,
)
from respread.kube.requests import NoResponseError, Response
from tests.fake_requests import FakeRequests


def reference(name: str) -> OwnerReference:
    return OwnerReference("apps/v1", "ReplicaSet", name, f"uid-{name}")


def controller(name: str, **labels: str) -> ControllerObject:
    selector = {"matchLabels": {"app": "web", "pod-template-hash": name} | labels}
    metadata = {"name": name, "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": metadata, "spec": {"selector": selector}}, type=ControllerObject)


def listed(name: str, owner: str, **labels: str) -> dict[str, Any]:
    references = [{"kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}", "controller": True}]
    metadata = {"name": name, "uid": f"uid-{name}", "ownerReferences": references}
    return {"metadata": {**metadata, "labels": {"app": "web", "pod-template-hash": owner} | labels}}


class Server(FakeRequests):
    """An API server that answers on command, with the pods at that time."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = list(pods)
        self.selectors: list[str] = []
        self.lets = asyncio.Event()
        self.status_code = 200
        self.error: NoResponseError | None = None

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        assert (method, path) == ("GET", "/api/v1/namespaces/{namespace}/pods")
        assert names == {"namespace": "shop"}
        self.selectors.append(options["query"].get("labelSelector", ""))
        body = json.dumps({"metadata": {}, "items": self.pods}).encode()
        await self.lets.wait()
        if self.error is not None:
            raise self.error
        return Response(status_code=self.status_code, body=body)


def names(found: PodsOfController | Held) -> list[str]:
    assert not isinstance(found, Held), found
    return [each.pod.metadata.name for each in found]


def asked(lists: PodLists, *controllers: str) -> list[asyncio.Task[PodsOfController | Held]]:
    return [asyncio.create_task(lists.of("shop", reference(name), controller(name))) for name in controllers]


async def until_sent(server: Server, requests: int) -> None:
    while len(server.selectors) < requests:  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0.001)


async def test_concurrent_callers_share_one_request() -> None:
    names_of = [f"c{number}" for number in range(50)]
    server = Server(*(listed(f"pod-{name}", name) for name in names_of))
    lists = PodLists(server)
    first = asked(lists, *names_of[:20])
    await until_sent(server, 1)
    others = asked(lists, *names_of[20:])
    await asyncio.sleep(0.05)
    assert len(server.selectors) == 1
    server.lets.set()
    found = [await task for task in (*first, *others)]
    assert list(map(names, found)) == [[f"pod-{name}"] for name in names_of]
    assert len(server.selectors) == 2
    assert server.selectors[0] == f"pod-template-hash in ({','.join(sorted(names_of[:20]))})"


async def test_a_caller_never_gets_a_list_from_before_its_call() -> None:
    server = Server(listed("one", "c"))
    lists = PodLists(server)
    (before,) = asked(lists, "c")
    await until_sent(server, 1)
    server.pods = [listed("two", "c")]
    (after,) = asked(lists, "c")
    server.lets.set()
    assert names(await before) == ["one"]
    assert names(await after) == ["two"]


async def test_only_pods_that_the_controller_selects_and_owns_count() -> None:
    server = Server(
        listed("its", "c"), listed("anothers", "d", **{"pod-template-hash": "c"}), listed("relabelled", "c", app="x")
    )
    server.lets.set()
    (task,) = asked(PodLists(server), "c")
    assert names(await task) == ["its"]


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
@pytest.mark.parametrize("selector", [{"app": "db"}, {"pod-template-hash": ""}, {}])
async def test_controllers_that_the_label_does_not_distinguish_are_listed_separately(
    selector: dict[str, str], kind: str
) -> None:
    server = Server(listed("db-0", "db", **selector), listed("other", "c"))
    server.lets.set()
    labels = {"matchLabels": selector} if selector and kind == "ReplicaSet" else selector
    document = {"metadata": {"name": "db", "uid": "uid-db"}, "spec": {"selector": labels}}
    found = msgspec.convert(document, type=ControllerObject)
    of = msgspec.structs.replace(reference("db"), kind=kind)
    assert names(await PodLists(server).of("shop", of, found)) == ["db-0"]
    assert server.selectors == [",".join(f"{key}={value}" for key, value in selector.items())]


async def test_a_cancelled_caller_does_not_affect_the_others_and_a_failure_reaches_all() -> None:
    server = Server(listed("one", "c"), listed("two", "d"))
    lists = PodLists(server)
    one, two = asked(lists, "c", "d")
    await until_sent(server, 1)
    one.cancel()
    server.lets.set()
    assert names(await two) == ["two"]
    server.status_code = 500
    refused = await asyncio.gather(*asked(lists, "c", "d"))
    server.error = NoResponseError("the line is dead", sent=True)
    dead = await asyncio.gather(*asked(lists, "c", "d"))
    for held in (*refused, *dead):
        assert isinstance(held, Held)
        assert held.reason is Reason.API_UNAVAILABLE


async def test_a_list_of_very_large_pods_keeps_a_bounded_part() -> None:
    server = Server(*(listed(f"pod-{at}", "one") | {"spec": {"fat": "x" * (1 << 20)}} for at in range(40)))
    server.lets.set()
    (task,) = asked(PodLists(server), "one")
    found = await task
    assert not isinstance(found, Held)
    kept = [len(each.document) for each in found if each.document is not None]
    assert len(found) == 40
    assert 20 << 20 < sum(kept) <= 33 << 20


@pytest.mark.parametrize(
    ("api_version", "status", "expected"),
    [
        ("apps/v1", 200, ("web", None)),
        ("apps/v1", 500, (None, Reason.API_UNAVAILABLE)),
        ("apps/v1", 404, (None, Reason.UNKNOWN_REPLACEMENT)),
        ("example.com/v1", 200, (None, None)),
    ],
)
async def test_the_deployment_of_a_replica_set_is_read_with_it(
    api_version: str, status: int, expected: tuple[str | None, Reason | None]
) -> None:
    owner = {"apiVersion": api_version, "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "no-controller", "uid": "uid"}, owner]

    class Controllers(FakeRequests):
        async def answer(self, method: str, path: str, names: Mapping[str, str], **_: Any) -> Response:
            assert method == "GET"
            metadata = {"name": names["name"], "uid": f"uid-{names['name']}", "ownerReferences": owners}
            body = json.dumps({"metadata": metadata, "spec": {"replicas": 3}}).encode()
            return Response(status_code=status if "deployments" in path else 200, body=body)

    async def no_pods(*_: object) -> PodsOfController:
        return ()

    found = await read_owner(Controllers(), no_pods, "shop", reference("c"))
    assert isinstance(found, OwnerReading)
    assert (found.owner and found.owner.metadata.name, found.owner_unread and found.owner_unread.reason) == expected
    assert found.owner_kind == "Deployment"
    held = Held(Reason.API_UNAVAILABLE, "no")

    async def unlisted(*_: object) -> Held:
        return held

    assert await read_owner(Controllers(), unlisted, "shop", reference("c")) is held
    another = msgspec.structs.replace(reference("c"), uid="another")
    assert isinstance(await read_owner(Controllers(), no_pods, "shop", another), Held)


@pytest.mark.virtual_time
@pytest.mark.parametrize(("takes", "waits", "reads"), [(0.5, 1.0, 1), (0.5, 1.5, 2), (2.5, 0.0, 2)])
async def test_a_reading_is_as_old_as_its_request(takes: float, waits: float, reads: int) -> None:
    read: list[int] = []

    async def slowly() -> int:
        await asyncio.sleep(takes)
        read.append(len(read))
        return len(read)

    readings: BatchReadings[int] = BatchReadings(asyncio.get_running_loop().time, 2.0)
    assert await readings.get("web", slowly) == 1
    await asyncio.sleep(waits)
    assert readings.known("web") == (1 if reads == 1 else None)
    assert await readings.get("web", slowly) == reads


@pytest.mark.virtual_time
async def test_a_failure_serves_for_a_moment() -> None:
    failed: list[float] = []
    now = asyncio.get_running_loop().time
    readings: BatchReadings[int] = BatchReadings(now, 2.0)

    async def fail() -> Held:
        await asyncio.sleep(5)
        failed.append(now())
        return Held(Reason.API_UNAVAILABLE, "no")

    first, second = await asyncio.gather(readings.get("web", fail), readings.get("web", fail))
    assert first is second
    assert readings.known("web") is None
    await asyncio.sleep(1.0)
    assert await readings.get("web", fail) is not first
    assert len(failed) == 2
