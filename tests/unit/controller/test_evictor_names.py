"""The Event that names another evictor of pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from respread.cluster.pod import WorkloadName
from respread.holds.other_evictions import MOST_WAITING, EvictorNames
from respread.kube.events import REPORTING_CONTROLLER
from respread.kube.requests import NoResponseError, Response
from tests.fake_requests import FakeRequests
from tests.worlds import pod, spec

pytestmark = pytest.mark.virtual_time

DESCHEDULER = {"reportingController": "sigs.k8s.io.descheduler", "reason": "PodLifeTime", "action": "Descheduled"}
UPDATER = {"reportingController": "vpa-updater", "reason": "EvictedByVPA", "note": "Pod was evicted to resize it."}
SCHEDULER = {"reportingController": "default-scheduler", "reason": "Scheduled", "note": "assigned descheduler/web-0"}
KUBELET = {"reportingController": "kubelet", "reason": "Killing", "action": "", "note": "Stopping container main"}
OURS = {"reportingController": REPORTING_CONTROLLER, "reason": "Evicted", "note": "evicted"}


class Events(FakeRequests):
    """An API server with Events about every pod."""

    def __init__(self, answer: bytes | None, status_code: int = 200) -> None:
        super().__init__()
        self._answer, self._status_code = answer, status_code
        self.asked: list[str] = []

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        assert (method, names["namespace"], path.rpartition("/")[2]) == ("GET", "default", "events")
        self.asked.append(options["query"]["fieldSelector"])
        if self._answer is None:
            raise NoResponseError("no answer", sent=True)
        return Response(status_code=self._status_code, body=self._answer)


def listed(*events: dict[str, str]) -> bytes:
    return json.dumps({"items": list(events)}).encode()


async def names_found(requests: Events, pods: int = 1) -> list[tuple[WorkloadName, str]]:
    reported: list[tuple[WorkloadName, str]] = []
    names = EvictorNames(requests, lambda workload, name: reported.append((workload, name)))
    for number in range(pods):
        names.look_for(pod(f"web-{number}", "a1", spec()))
    running = asyncio.create_task(names.run())
    await asyncio.sleep(120)
    assert running.cancel(), "it goes on until then"
    return reported


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((SCHEDULER, KUBELET, DESCHEDULER), "sigs.k8s.io.descheduler"),
        (({**UPDATER, "reportingController": "x" * 100_000}, DESCHEDULER), "sigs.k8s.io.descheduler"),
        (({**UPDATER, "reportingController": "red\x1b[31m"}, DESCHEDULER), "sigs.k8s.io.descheduler"),
        ((UPDATER,), "vpa-updater"),
        ((SCHEDULER, KUBELET, OURS), None),
        ((), None),
    ],
)
async def test_the_reporter_of_an_eviction_event_is_named(
    events: tuple[dict[str, str], ...], expected: str | None
) -> None:
    requests = Events(listed(*events))
    assert [name for _, name in await names_found(requests)] == ([] if expected is None else [expected])
    assert requests.asked == [f"regarding.uid={pod('web-0', 'a1', spec()).uid}"]


@pytest.mark.parametrize(
    ("answer", "status_code"), [(None, 200), (b"{}", 403), (b"no JSON", 200), (b'{"items": null}', 200), (b"[]", 200)]
)
async def test_without_events_no_evictor_is_named(answer: bytes | None, status_code: int) -> None:
    assert await names_found(Events(answer, status_code)) == []


async def test_events_are_requested_for_a_few_pods_at_a_time() -> None:
    assert len(await names_found(Events(listed(DESCHEDULER)), 3 * MOST_WAITING)) == MOST_WAITING
