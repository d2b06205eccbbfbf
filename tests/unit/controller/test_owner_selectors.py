"""Reads of owners for default constraints: only necessary ones, and again only after possible changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Self

import pytest

from respread.api.policy import ConstraintRules, Policy, PolicySpec
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Workload
from respread.controller.owner_selectors import AT_ONCE, READ_AGAIN_SECONDS, OwnerSelectors
from respread.controller.scheduler_model import SchedulerModel
from respread.kube.requests import NoResponseError, Response
from respread.kube.server_version import ASK_AGAIN_SECONDS, ServerVersion
from respread.planning.victims.policies import PolicyIndex
from respread.scheduling.default_selector import SelectingOwner
from respread.spread.index import Spread
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts
from tests.virtual_time import run_in_virtual_time
from tests.worlds import cluster

PATHS = {"/apis/apps/v1": ("ReplicaSet", "StatefulSet"), "/api/v1": ("ReplicationController",)}


def owner(name: str, kind: str = "ReplicaSet", uid: str = "") -> SelectingOwner:
    return SelectingOwner(f"{kind.lower()}s", kind, ObjectKey("shop", name), uid or f"uid-{name}")


def manifest(name: str, selector: Any = None) -> dict[str, Any]:
    chosen = {"matchLabels": {"app": name}} if selector is None else selector
    status = {"replicas": 3, "observedGeneration": 7}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {"replicas": 3, "selector": chosen},
        "status": status,
    }


class Server(FakeRequests):
    """Gives scripted answers after a tenth of a second."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, dict[str, Any]] = {}
        self.refusals: dict[str, int] = {}
        self.silent = False
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

    async def answer(self, method: str, path: str, names: Mapping[str, str], **_: Any) -> Response:
        assert method == "GET"
        self.asked.append(path.format(**names))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.1)
        self.at_once -= 1
        if self.silent:
            raise NoResponseError("nobody is there", sent=False)
        name = names.get("name", path)
        if name in self.refusals:
            return Response(status_code=self.refusals[name], body=b'{"kind": "Status", "message": "no"}')
        if name not in self.objects:
            return Response(status_code=404, body=b"{}")
        return Response(status_code=200, body=json.dumps(self.objects[name]).encode())


class World:
    """A reader of owners with everything that it needs."""

    def __init__(self, *names: str) -> None:
        self.parts = Parts()
        self.server = Server()
        self.server.objects = {name: manifest(name) for name in names}
        self.reader = OwnerSelectors(self.server, self.parts.informers, lambda: asyncio.get_running_loop().time())
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.reader.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        assert not self._running.done()
        self._running.cancel()
        await asyncio.wait([self._running])

    def known(self, resource: str = "replica_sets") -> dict[str, Workload]:
        held: Mapping[ObjectKey, Workload] = getattr(self.parts.informers.state.snapshot, resource)
        return {key.name: workload for key, workload in held.items()}


def selects(workload: Workload) -> dict[str, str]:
    return {} if workload.selector is None else dict(workload.selector.match_labels)


def test_a_wanted_owner_is_read_once_and_wakes_the_control_loop() -> None:
    async def story() -> None:
        async with World("web", "api") as world:
            assert not world.reader.want([owner("web")])
            await asyncio.wait_for(world.parts.informers.changes.wait(), 1)
            assert selects(world.known()["web"]) == {"app": "web"}
            assert world.known()["web"].replicas == Workload(namespace="", name="").replicas
            assert world.reader.want([owner("web")])
            await asyncio.sleep(10 * READ_AGAIN_SECONDS)
            assert world.server.asked == ["/apis/apps/v1/namespaces/shop/replicasets/web"]
            assert not world.reader.want([owner("web"), owner("api")])
            await asyncio.sleep(1)
            assert world.server.asked[1:] == ["/apis/apps/v1/namespaces/shop/replicasets/api"]

    run_in_virtual_time(story())


@pytest.mark.parametrize(
    ("kind", "resource", "path"),
    [
        ("StatefulSet", "stateful_sets", "/apis/apps/v1/namespaces/shop/statefulsets/web"),
        ("ReplicationController", "replication_controllers", "/api/v1/namespaces/shop/replicationcontrollers/web"),
    ],
)
def test_every_kind_is_read_from_its_path(kind: str, resource: str, path: str) -> None:
    async def story() -> None:
        async with World() as world:
            plain = {"app": "web"}
            world.server.objects["web"] = manifest("web", plain if kind == "ReplicationController" else None)
            world.reader.want([owner("web", kind)])
            await asyncio.sleep(1)
            assert world.server.asked == [path]
            assert selects(world.known(resource)["web"]) == plain

    run_in_virtual_time(story())


def test_thousands_of_owners_are_read_a_few_at_a_time_and_reported_meanwhile() -> None:
    async def story() -> None:
        names = [f"web-{number}" for number in range(1000)]
        async with World(*names) as world:
            world.reader.want(map(owner, names))
            await world.parts.informers.changes.wait()
            assert 0 < len(world.known()) < 1000
            await asyncio.sleep(60)
            assert len(world.known()) == 1000
            assert len(world.server.asked) == 1000
            assert world.server.most_at_once == AT_ONCE

    run_in_virtual_time(story())


def test_an_owner_that_is_no_longer_wanted_is_forgotten() -> None:
    async def story() -> None:
        async with World("web", "api") as world:
            world.reader.want([owner("web"), owner("api")])
            await asyncio.sleep(1)
            world.reader.want([owner("api")])
            assert set(world.known()) == {"api"}
            world.reader.want([owner("web"), owner("api")])
            await asyncio.sleep(1)
            assert set(world.known()) == {"web", "api"}

    run_in_virtual_time(story())


def test_an_owner_that_is_no_longer_wanted_when_it_is_read_is_not_kept() -> None:
    async def story() -> None:
        async with World("web") as world:
            world.reader.want([owner("web")])
            await asyncio.sleep(0.05)
            world.reader.want([])
            await asyncio.sleep(1)
            assert world.known() == {}
            assert world.reader.want([])

    run_in_virtual_time(story())


def test_a_recreated_owner_of_the_same_name_is_read_again() -> None:
    async def story() -> None:
        async with World("web") as world:
            world.reader.want([owner("web", uid="one")])
            await asyncio.sleep(1)
            world.server.objects["web"] = manifest("web", {"matchLabels": {"app": "other"}})
            world.reader.want([owner("web", uid="two")])
            await asyncio.sleep(1)
            assert selects(world.known()["web"]) == {"app": "other"}

    run_in_virtual_time(story())


def test_a_missing_owner_selects_nothing_until_it_exists() -> None:
    async def story() -> None:
        async with World() as world:
            world.reader.want([owner("web")])
            await asyncio.sleep(1)
            assert world.known()["web"].selector is None
            assert world.reader.want([owner("web")])
            world.server.objects["web"] = manifest("web")
            await asyncio.sleep(READ_AGAIN_SECONDS)
            assert selects(world.known()["web"]) == {"app": "web"}

    run_in_virtual_time(story())


def test_selectors_of_replication_controllers_may_change() -> None:
    async def story() -> None:
        async with World() as world:
            world.server.objects["web"] = manifest("web", {"app": "web"})
            world.reader.want([owner("web", "ReplicationController")])
            await asyncio.sleep(1)
            world.server.objects["web"] = manifest("web", {"app": "other"})
            await asyncio.sleep(READ_AGAIN_SECONDS)
            assert selects(world.known("replication_controllers")["web"]) == {"app": "other"}

    run_in_virtual_time(story())


def test_a_forbidden_owner_stays_unknown_and_others_are_read() -> None:
    async def story() -> None:
        async with World("api", "web") as world:
            world.server.refusals["web"] = 403
            assert not world.reader.want([owner("web"), owner("api")])
            await asyncio.sleep(1)
            assert set(world.known()) == {"api"}
            assert world.reader.want([owner("web"), owner("api")]), "it was asked for, and there is no more to wait for"
            assert len(world.server.asked) == 2
            del world.server.refusals["web"]
            await asyncio.sleep(READ_AGAIN_SECONDS)
            assert set(world.known()) == {"api", "web"}

    run_in_virtual_time(story())


@pytest.mark.parametrize("trouble", ["silence", 429, 500, 401])
def test_after_a_server_error_no_owner_is_read_for_a_while(trouble: str | int) -> None:
    async def story() -> None:
        names = [f"web-{number}" for number in range(100)]
        async with World(*names) as world:
            if isinstance(trouble, int):
                world.server.refusals = dict.fromkeys(names, trouble)
            else:
                world.server.silent = True
            world.reader.want(map(owner, names))
            await asyncio.sleep(0.4)
            assert len(world.server.asked) == AT_ONCE
            await asyncio.sleep(120)
            assert len(world.server.asked) <= 12 * AT_ONCE
            world.server.silent, world.server.refusals = False, {}
            await asyncio.sleep(60)
            assert len(world.known()) == len(names)

    run_in_virtual_time(story())


def test_an_owner_that_can_not_be_decoded_stays_unknown() -> None:
    async def story() -> None:
        async with World("api") as world:
            world.server.objects["web"] = manifest("web", {"matchExpressions": [{"key": "", "operator": "Exists"}]})
            world.reader.want([owner("web"), owner("api")])
            await asyncio.sleep(1)
            assert set(world.known()) == {"api"}

    run_in_virtual_time(story())


# The version


def test_the_server_version_is_requested_until_it_is_known_and_then_followed() -> None:
    async def story() -> None:
        world = World()
        version = ServerVersion(world.server, world.parts.informers.changes)
        asking = asyncio.create_task(version.run())
        assert not version.asked
        await world.parts.informers.changes.wait()
        assert version.asked
        assert version.version == ""
        world.server.objects["/version"] = {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
        await asyncio.sleep(5)
        assert version.version == "v1.36.3"
        world.server.objects["/version"] = {"gitVersion": "v1.37.0"}
        await asyncio.sleep(ASK_AGAIN_SECONDS)
        assert version.version == "v1.37.0"
        assert world.parts.informers.changes.take() == {"version"}
        asking.cancel()
        await asyncio.wait([asking])

    run_in_virtual_time(story())


def test_owners_are_read_only_in_namespaces_of_a_policy() -> None:
    async def story() -> None:
        async with World("web", "api") as world:
            model = SchedulerModel(owners=world.reader)
            elsewhere = SelectingOwner("replicasets", "ReplicaSet", ObjectKey("elsewhere", "web"), "uid")
            spread = Spread({}, {}, {"shop": frozenset({owner("web")}), "elsewhere": frozenset({elsewhere})})
            in_shop = Policy(kind="RebalancePolicy", namespace="shop", object_name="mine", spec=PolicySpec())
            assert model.learn(spread, cluster([], []), PolicyIndex([]))
            assert not model.learn(spread, cluster([], []), PolicyIndex([in_shop]))
            await asyncio.sleep(1)
            assert world.server.asked == ["/apis/apps/v1/namespaces/shop/replicasets/web"]
            assert model.learn(spread, cluster([], []), PolicyIndex([in_shop]))

    run_in_virtual_time(story())


def test_soft_defaults_count_only_while_a_policy_selects_soft_constraints() -> None:
    model = SchedulerModel()
    as_it_comes = model.index
    model.follow([Policy(kind="RebalancePolicy", namespace="shop", object_name="hard", spec=PolicySpec())])
    assert model.index is as_it_comes
    soft = PolicySpec(constraints=ConstraintRules(when_unsatisfiable=("ScheduleAnyway",)))
    model.follow([Policy(kind="RebalancePolicy", namespace="shop", object_name="soft", spec=soft)])
    assert model.index is not as_it_comes


def test_the_scheduler_model_changes_only_with_the_server_version() -> None:
    world = World()
    version = ServerVersion(world.server, world.parts.informers.changes)
    model = SchedulerModel(version=version)
    model.follow([])
    planner = model.planner
    assert not model.learn(Spread({}, {}), cluster([], []), PolicyIndex([]))
    version.version, version.asked = "v1.36.3", True
    model.follow([])
    assert model.planner is not planner
    assert model.learn(Spread({}, {}), cluster([], []), PolicyIndex([]))
    planner = model.planner
    model.follow([])
    assert model.planner is planner
