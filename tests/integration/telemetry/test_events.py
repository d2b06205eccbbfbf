"""Events on a real API server: their form and counts, and refusals that are only logged."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from respread.kube.events import Event, EventObject, EventRecorder, EventType
from respread_sandbox import Sandbox
from tests.integration.eviction_cluster import requests_to


@pytest.fixture
def namespace(api_sandbox: Sandbox) -> str:
    name = f"events-{secrets.token_hex(4)}"
    api_sandbox.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@asynccontextmanager
async def recording(kubeconfig: Path, **options: Any) -> AsyncIterator[EventRecorder]:
    """Yield a recorder, and close it."""
    async with (
        requests_to(kubeconfig) as requests,
        EventRecorder(requests, instance="respread-0", **options).writing() as recorder,
    ):
        yield recorder


def deployment(namespace: str, name: str = "web") -> EventObject:
    return EventObject(api_version="apps/v1", kind="Deployment", namespace=namespace, name=name, uid="0-1")


def evicted(namespace: str, note: str = "Moved one pod from zone-a") -> Event:
    return Event(regarding=deployment(namespace), reason="Evicted", action="Evict", note=note)


def read(sandbox: Sandbox, namespace: str) -> list[dict[str, Any]]:
    """Return the Events of a namespace, oldest first."""
    events: list[dict[str, Any]] = sandbox.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return sorted(events, key=lambda event: str(event["eventTime"]))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - the API server sets no asyncio.Event
            await asyncio.sleep(0.05)


async def test_an_event_has_all_fields(api_sandbox: Sandbox, namespace: str) -> None:
    pod = EventObject(api_version="v1", kind="Pod", namespace=namespace, name="web-1", uid="0-2")
    before = datetime.now(UTC)
    async with recording(api_sandbox.kubeconfig) as recorder:
        recorder.record(
            Event(
                regarding=deployment(namespace),
                related=pod,
                reason="HeldByBudget",
                action="Plan",
                note="Budget web allows no disruption",
                type=EventType.WARNING,
            )
        )
        await until(lambda: len(read(api_sandbox, namespace)) == 1)
    (event,) = read(api_sandbox, namespace)
    assert event["regarding"] == {
        "apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": "web", "uid": "0-1",
    }  # fmt: skip
    assert event["related"]["name"] == "web-1"
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "HeldByBudget", "Plan")
    assert event["note"] == "Budget web allows no disruption"
    assert event["reportingController"] == "respread.dev/respread"
    assert event["reportingInstance"] == "respread-0"
    assert event["metadata"]["name"].startswith("web.")
    assert before <= datetime.fromisoformat(event["eventTime"]) <= datetime.now(UTC)
    assert "series" not in event
    shown = api_sandbox.kubectl("events", "-n", namespace, "--for", "Deployment/web")
    assert "Warning   HeldByBudget   Deployment/web   Budget web allows no disruption" in shown


async def test_repeated_events_are_counted_in_the_first_one(api_sandbox: Sandbox, namespace: str) -> None:
    async with recording(api_sandbox.kubeconfig, count_interval_seconds=0.2) as recorder:
        for _ in range(4):
            recorder.record(evicted(namespace))
        await until(lambda: "series" in (read(api_sandbox, namespace) or [{}])[0])
        (event,) = read(api_sandbox, namespace)
        assert event["series"]["count"] == 4
        for _ in range(3):
            recorder.record(evicted(namespace))
        await until(lambda: bool(read(api_sandbox, namespace)[0]["series"]["count"] == 7))
    (event,) = read(api_sandbox, namespace)
    assert event["eventTime"] < event["series"]["lastObservedTime"]


async def test_closing_writes_queued_events(api_sandbox: Sandbox, namespace: str) -> None:
    async with recording(api_sandbox.kubeconfig) as recorder:
        for n in range(20):
            recorder.record(evicted(namespace, note=f"note {n}"))
        recorder.record(evicted(namespace, note="note 0"))
    events = read(api_sandbox, namespace)
    assert [event["note"] for event in events] == [f"note {n}" for n in range(20)]
    assert [event.get("series", {}).get("count") for event in events] == [2] + [None] * 19


async def test_an_event_on_a_cluster_scoped_object_is_in_the_default_namespace(api_sandbox: Sandbox) -> None:
    name = f"policy-{secrets.token_hex(4)}"
    policy = EventObject(
        api_version="respread.dev/v1alpha1", kind="ClusterRebalancePolicy", namespace="", name=name, uid="0-3"
    )
    async with recording(api_sandbox.kubeconfig) as recorder:
        recorder.record(Event(regarding=policy, reason="InvalidPolicy", action="Validate", note="No such time zone"))
    (event,) = [event for event in read(api_sandbox, "default") if event["regarding"]["name"] == name]
    assert "namespace" not in event["regarding"]


@pytest.mark.parametrize(
    "note", ["n" * 1024, "n" * 1025, "ö" * 513, "🙂" * 4000, "a" + "ö" * 600, "\ud800 lone surrogate", "line\nbreak"]
)
async def test_a_long_note_is_shortened_to_what_the_api_accepts(
    api_sandbox: Sandbox, namespace: str, note: str
) -> None:
    async with recording(api_sandbox.kubeconfig) as recorder:
        recorder.record(evicted(namespace, note=note))
    (event,) = read(api_sandbox, namespace)
    written = event["note"]
    assert len(written.encode()) <= 1024
    if len(note.encode(errors="replace")) <= 1024:
        assert written == note.replace("\ud800", "?")
    else:
        assert written.endswith("…")
        assert note.startswith(written.removesuffix("…"))
        assert len(written.encode()) > 1015


async def test_names_of_maximum_length_are_accepted(api_sandbox: Sandbox, namespace: str) -> None:
    event = Event(
        regarding=deployment(namespace, name="w" * 236 + "-" * 16 + "w"), reason="R" * 200, action="A" * 200, note="n"
    )
    async with recording(api_sandbox.kubeconfig) as recorder:
        recorder.record(event)
    (written,) = read(api_sandbox, namespace)
    assert (len(written["reason"]), len(written["action"])) == (128, 128)


async def test_a_time_without_microseconds_is_accepted(api_sandbox: Sandbox, namespace: str) -> None:
    async with recording(api_sandbox.kubeconfig, now=lambda: datetime(2026, 1, 1, tzinfo=UTC)) as recorder:
        recorder.record(evicted(namespace))
        recorder.record(evicted(namespace))
    (event,) = read(api_sandbox, namespace)
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert event["series"] == {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}


async def test_a_deleted_event_is_created_again(
    api_sandbox: Sandbox, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with recording(api_sandbox.kubeconfig, count_interval_seconds=0.1) as recorder:
        recorder.record(evicted(namespace))
        await until(lambda: len(read(api_sandbox, namespace)) == 1)
        events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        await asyncio.to_thread(api_sandbox.api.request, "DELETE", events)
        recorder.record(evicted(namespace))
        await until(lambda: "could not be written" in caplog.text)
        recorder.record(evicted(namespace))
        await until(lambda: len(read(api_sandbox, namespace)) == 1)


async def test_without_permission_to_write_events_one_line_is_logged(
    api_sandbox: Sandbox, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    account = {"metadata": {"name": "nobody"}}
    api_sandbox.api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    kubeconfig = api_sandbox.kubeconfig_for_service_account(namespace, "nobody")
    async with recording(kubeconfig) as recorder:
        for n in range(5):
            recorder.record(evicted(namespace, note=str(n)))
    assert read(api_sandbox, namespace) == []
    (logged,), line = caplog.records, cast("dict[str, Any]", caplog.records[0].msg)
    assert (logged.levelname, str(line["regarding"])) == ("WARNING", f"Deployment {namespace}/web")
    assert line["error"].startswith("403 events.events.k8s.io is forbidden")
    assert "cannot create resource" in line["error"]


async def test_a_rejected_event_does_not_stop_the_others(
    api_sandbox: Sandbox, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Event(regarding=deployment(namespace), reason="Broken", action="Break", note=None)  # type: ignore[arg-type]  # as a bug would
    async with recording(api_sandbox.kubeconfig) as recorder:
        recorder.record(broken)
        recorder.record(evicted(namespace))
        await until(lambda: len(read(api_sandbox, namespace)) == 1)
    assert "An Event could not be written" in caplog.text
