"""Reads of owners for default constraints: only necessary ones, and again only after possible changes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import pytest

from respread.api.policy import ConstraintRules, Policy, PolicySpec
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Workload
from respread.controller.scheduler_model import (
    AT_ONCE,
    READ_AGAIN_SECONDS,
    OwnerSelectors,
    SchedulerModel,
    ServerVersion,
)
from respread.kube.requests import NoResponseError, Response
from respread.planning.victims.policies import PolicyIndex
from respread.scheduling.configuration import SchedulerConfiguration, SelectingOwner
from respread.spread.index import Spread
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts
from tests.worlds import cluster

pytestmark = pytest.mark.virtual_time


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
            raise NoResponseError("no server", sent=False)
        name = names.get("name", path)
        if name in self.refusals:
            return Response(status_code=self.refusals[name], body=b'{"kind": "Status", "message": "no"}')
        if name not in self.objects:
            return Response(status_code=404, body=b"{}")
        return Response(status_code=200, body=json.dumps(self.objects[name]).encode())


class Setup:
    """A reader of owners with its informers and API server."""

    def __init__(self, *names: str) -> None:
        self.parts = Parts()
        self.server = Server()
        self.server.objects = {name: manifest(name) for name in names}
        self.reader = OwnerSelectors(self.server, self.parts.informers, lambda: asyncio.get_running_loop().time())
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(SchedulerModel(owners=self.reader).run())
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


async def test_a_wanted_owner_is_read_once_and_wakes_the_control_loop() -> None:
    async with Setup("web", "api") as setup:
        assert not setup.reader.want([owner("web")])
        await asyncio.wait_for(setup.parts.informers.changes.wait(), 1)
        assert selects(setup.known()["web"]) == {"app": "web"}
        assert setup.known()["web"].replicas == Workload(namespace="", name="").replicas
        assert setup.reader.want([owner("web")])
        await asyncio.sleep(10 * READ_AGAIN_SECONDS)
        assert setup.server.asked == ["/apis/apps/v1/namespaces/shop/replicasets/web"]
        assert not setup.reader.want([owner("web"), owner("api")])
        await asyncio.sleep(1)
        assert setup.server.asked[1:] == ["/apis/apps/v1/namespaces/shop/replicasets/api"]


@pytest.mark.parametrize(
    ("kind", "resource", "path"),
    [
        ("StatefulSet", "stateful_sets", "/apis/apps/v1/namespaces/shop/statefulsets/web"),
        ("ReplicationController", "replication_controllers", "/api/v1/namespaces/shop/replicationcontrollers/web"),
    ],
)
async def test_every_kind_is_read_from_its_path(kind: str, resource: str, path: str) -> None:
    async with Setup() as setup:
        plain = {"app": "web"}
        setup.server.objects["web"] = manifest("web", plain if kind == "ReplicationController" else None)
        setup.reader.want([owner("web", kind)])
        await asyncio.sleep(1)
        assert setup.server.asked == [path]
        assert selects(setup.known(resource)["web"]) == plain
        assert setup.known() == {}, "it is no ReplicaSet"


async def test_thousands_of_owners_are_read_a_few_at_a_time_and_reported_meanwhile() -> None:
    names = [f"web-{number}" for number in range(1000)]
    async with Setup(*names) as setup:
        setup.reader.want(map(owner, names))
        await setup.parts.informers.changes.wait()
        assert 0 < len(setup.known()) < 1000
        await asyncio.sleep(60)
        assert len(setup.known()) == 1000
        assert len(setup.server.asked) == 1000
        assert setup.server.most_at_once == AT_ONCE


async def test_an_owner_that_is_no_longer_wanted_is_forgotten() -> None:
    async with Setup("web", "api") as setup:
        setup.reader.want([owner("web"), owner("api")])
        await asyncio.sleep(1)
        setup.reader.want([owner("api")])
        assert set(setup.known()) == {"api"}
        setup.reader.want([owner("web"), owner("api")])
        await asyncio.sleep(1)
        assert set(setup.known()) == {"web", "api"}


async def test_an_owner_that_is_no_longer_wanted_when_it_is_read_is_not_kept() -> None:
    async with Setup("web") as setup:
        setup.reader.want([owner("web")])
        await asyncio.sleep(0.05)
        setup.reader.want([])
        await asyncio.sleep(1)
        assert setup.known() == {}
        assert setup.reader.want([])


async def test_a_recreated_owner_of_the_same_name_is_read_again() -> None:
    async with Setup("web") as setup:
        setup.reader.want([owner("web", uid="one")])
        await asyncio.sleep(1)
        setup.server.objects["web"] = manifest("web", {"matchLabels": {"app": "other"}})
        setup.reader.want([owner("web", uid="two")])
        await asyncio.sleep(1)
        assert selects(setup.known()["web"]) == {"app": "other"}


async def test_a_missing_owner_selects_nothing_until_it_exists() -> None:
    async with Setup() as setup:
        setup.reader.want([owner("web")])
        await asyncio.sleep(1)
        assert setup.known()["web"].selector is None
        assert setup.reader.want([owner("web")])
        setup.server.objects["web"] = manifest("web")
        await asyncio.sleep(READ_AGAIN_SECONDS)
        assert selects(setup.known()["web"]) == {"app": "web"}


async def test_selectors_of_replication_controllers_may_change(caplog: pytest.LogCaptureFixture) -> None:
    async with Setup() as setup:
        setup.reader.want([owner("web", "ReplicationController")])
        for app in "one", "two":
            setup.server.objects["web"] = manifest("web", {"app": app})
            await asyncio.sleep(READ_AGAIN_SECONDS + 1)
            assert selects(setup.known("replication_controllers")["web"]) == {"app": app}
            setup.server.refusals = {"web": 403}
            await asyncio.sleep(2 * READ_AGAIN_SECONDS)
            setup.server.refusals = {}
    assert caplog.text.count("selector could not be read") == 2, "once each time"


@pytest.mark.parametrize("is_forbidden", [True, False])
async def test_an_owner_that_is_forbidden_or_can_not_be_decoded_stays_unknown(*, is_forbidden: bool) -> None:
    async with Setup("api", "web") as setup:
        if is_forbidden:
            setup.server.refusals["web"] = 403
        setup.server.objects["web"] = manifest("web", {"matchExpressions": [{"key": "", "operator": "Exists"}]})
        assert not setup.reader.want([owner("web"), owner("api")])
        await asyncio.sleep(1)
        assert set(setup.known()) == {"api"}
        assert setup.reader.want([owner("web"), owner("api")]), "it was asked for, and there is no more to wait for"
        assert len(setup.server.asked) == 2
        setup.server.refusals, setup.server.objects["web"] = {}, manifest("web")
        await asyncio.sleep(READ_AGAIN_SECONDS)
        assert set(setup.known()) == {"api", "web"}


@pytest.mark.parametrize("trouble", ["silence", 429, 500, 401])
async def test_after_a_server_error_no_owner_is_read_for_a_while(
    trouble: str | int, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"web-{number}" for number in range(100)]
    async with Setup(*names) as setup:
        if isinstance(trouble, int):
            setup.server.refusals = dict.fromkeys(names, trouble)
        else:
            setup.server.silent = True
        setup.reader.want(map(owner, names))
        await asyncio.sleep(0.4)
        assert len(setup.server.asked) == AT_ONCE
        await asyncio.sleep(120)
        assert len(setup.server.asked) <= 12 * AT_ONCE
        assert caplog.text.count("selector could not be read") == 1
        setup.server.silent, setup.server.refusals = False, {}
        await asyncio.sleep(60)
        assert len(setup.known()) == len(names)
        setup.server.refusals = {"new": 500}
        setup.reader.want([owner("new"), owner("gone")])
        await asyncio.sleep(1.5)
        assert caplog.text.count("selector could not be read") == 2, "others could be read in between"
        assert [path.rpartition("/")[2] for path in setup.server.asked].count("new") == 2, "the first pause is short"


# The version


async def test_the_version_is_requested_until_it_is_known_and_then_followed(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    version = ServerVersion(setup.server, partial(setup.parts.informers.changes.notify, "version"))
    asking = asyncio.create_task(SchedulerModel(version=version).run())
    assert not version.asked
    await setup.parts.informers.changes.wait()
    assert version.asked
    assert version.version == ""
    assert "the answer was 404" in caplog.text
    assert {len(each) for each in re.findall(r"'wait_seconds': ([\d.]+)", caplog.text)} == {len("0.5")}
    setup.server.objects["/version"] = {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
    await asyncio.sleep(5)
    assert version.version == "v1.36.3"
    setup.server.objects["/version"] = {"gitVersion": "v1.37.0"}
    await asyncio.sleep(600)  # within 10 minutes
    assert version.version == "v1.37.0"
    assert setup.parts.informers.changes.take() == {"version"}
    await asyncio.sleep(600)
    del setup.server.objects["/version"]
    await asyncio.sleep(600)
    assert (version.version, setup.parts.informers.changes.take()) == ("v1.37.0", frozenset())
    assert setup.server.asked.count("/version") < 20
    asking.cancel()
    await asyncio.wait([asking])


async def test_owners_are_read_only_in_namespaces_of_a_policy() -> None:
    async with Setup("web", "api") as setup:
        model = SchedulerModel(owners=setup.reader)
        elsewhere = SelectingOwner("replicasets", "ReplicaSet", ObjectKey("elsewhere", "web"), "uid")
        spread = Spread({}, {}, {"shop": frozenset({owner("web")}), "elsewhere": frozenset({elsewhere})})
        in_shop = Policy(kind="RebalancePolicy", namespace="shop", object_name="mine", spec=PolicySpec())
        assert model.learn(spread, cluster([], []), PolicyIndex([]))
        assert not model.learn(spread, cluster([], []), PolicyIndex([in_shop]))
        await asyncio.sleep(1)
        assert setup.server.asked == ["/apis/apps/v1/namespaces/shop/replicasets/web"]
        model.plan_depends_on(frozenset({owner("api")}))
        await asyncio.sleep(1)
        assert model.learn(spread, cluster([], []), PolicyIndex([in_shop]))
        assert set(setup.known()) == {"web", "api"}, "those of pods that were planned for are read at once"


def test_soft_defaults_count_only_while_a_policy_selects_soft_constraints() -> None:
    model = SchedulerModel(configured := SchedulerConfiguration(keeps_namespace_selectors=True))
    as_it_comes = model.index
    model.follow([Policy(kind="RebalancePolicy", namespace="shop", object_name="hard", spec=PolicySpec())])
    assert model.index is as_it_comes
    soft = PolicySpec(constraints=ConstraintRules(when_unsatisfiable=("ScheduleAnyway",)))
    model.follow([Policy(kind="RebalancePolicy", namespace="shop", object_name="soft", spec=soft)])
    assert model.index is not as_it_comes
    assert model.predictor.configuration == configured


def test_the_scheduler_model_changes_only_with_the_server_version() -> None:
    setup = Setup()
    version = ServerVersion(setup.server, partial(setup.parts.informers.changes.notify, "version"))
    model = SchedulerModel(None, version, setup.reader)
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
