"""Events on a real API server: their form and counts, and refusals that are only logged."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from respread.kube.access import load_access
from respread.kube.events import Event, EventObject, EventRecorder, EventType
from respread.kube.requests import open_requests
from respread_sandbox import Sandbox


@pytest.fixture
def namespace(api_sandbox: Sandbox) -> str:
    name = f"events-{secrets.token_hex(4)}"
    api_sandbox.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def record(kubeconfig: Path, use: Callable[[EventRecorder], Awaitable[None]], **options: Any) -> None:
    """Run `use` with a recorder, and close the recorder."""

    async def run() -> None:
        async with (
            open_requests(load_access(kubeconfig=str(kubeconfig))) as requests,
            EventRecorder(requests, instance="respread-0", **options).writing() as recorder,
        ):
            await use(recorder)

    asyncio.run(run())


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


def test_an_event_has_all_fields(api_sandbox: Sandbox, namespace: str) -> None:
    pod = EventObject(api_version="v1", kind="Pod", namespace=namespace, name="web-1", uid="0-2")

    async def use(recorder: EventRecorder) -> None:
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

    before = datetime.now(UTC)
    record(api_sandbox.kubeconfig, use)
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


def test_repeated_events_are_counted_in_the_first_one(api_sandbox: Sandbox, namespace: str) -> None:
    async def use(recorder: EventRecorder) -> None:
        for _ in range(4):
            recorder.record(evicted(namespace))
        await until(lambda: "series" in (read(api_sandbox, namespace) or [{}])[0])
        (event,) = read(api_sandbox, namespace)
        assert event["series"]["count"] == 4
        for _ in range(3):
            recorder.record(evicted(namespace))
        await until(lambda: bool(read(api_sandbox, namespace)[0]["series"]["count"] == 7))

    record(api_sandbox.kubeconfig, use, count_interval_seconds=0.2)
    (event,) = read(api_sandbox, namespace)
    assert event["eventTime"] < event["series"]["lastObservedTime"]


def test_closing_writes_queued_events(api_sandbox: Sandbox, namespace: str) -> None:
    async def use(recorder: EventRecorder) -> None:
        for n in range(20):
            recorder.record(evicted(namespace, note=f"note {n}"))
        recorder.record(evicted(namespace, note="note 0"))

    record(api_sandbox.kubeconfig, use)
    events = read(api_sandbox, namespace)
    assert [event["note"] for event in events] == [f"note {n}" for n in range(20)]
    assert [event.get("series", {}).get("count") for event in events] == [2] + [None] * 19


def test_an_event_on_a_cluster_scoped_object_is_in_the_default_namespace(api_sandbox: Sandbox) -> None:
    name = f"policy-{secrets.token_hex(4)}"
    policy = EventObject(
        api_version="respread.dev/v1alpha1", kind="ClusterRebalancePolicy", namespace="", name=name, uid="0-3"
    )

    async def use(recorder: EventRecorder) -> None:
        recorder.record(Event(regarding=policy, reason="InvalidPolicy", action="Validate", note="No such time zone"))

    record(api_sandbox.kubeconfig, use)
    (event,) = [event for event in read(api_sandbox, "default") if event["regarding"]["name"] == name]
    assert "namespace" not in event["regarding"]


@pytest.mark.parametrize(
    "note", ["n" * 1024, "n" * 1025, "ö" * 513, "🙂" * 4000, "a" + "ö" * 600, "\ud800 lone surrogate", "line\nbreak"]
)
def test_a_long_note_is_shortened_to_what_the_api_accepts(api_sandbox: Sandbox, namespace: str, note: str) -> None:
    async def use(recorder: EventRecorder) -> None:
        recorder.record(evicted(namespace, note=note))

    record(api_sandbox.kubeconfig, use)
    (event,) = read(api_sandbox, namespace)
    written = event["note"]
    assert len(written.encode()) <= 1024
    if len(note.encode(errors="replace")) <= 1024:
        assert written == note.replace("\ud800", "?")
    else:
        assert written.endswith("…")
        assert note.startswith(written.removesuffix("…"))
        assert len(written.encode()) > 1015


def test_names_of_maximum_length_are_accepted(api_sandbox: Sandbox, namespace: str) -> None:
    event = Event(
        regarding=deployment(namespace, name="w" * 236 + "-" * 16 + "w"), reason="R" * 200, action="A" * 200, note="n"
    )

    async def use(recorder: EventRecorder) -> None:
        recorder.record(event)

    record(api_sandbox.kubeconfig, use)
    (written,) = read(api_sandbox, namespace)
    assert (len(written["reason"]), len(written["action"])) == (128, 128)


def test_a_time_without_microseconds_is_accepted(api_sandbox: Sandbox, namespace: str) -> None:
    async def use(recorder: EventRecorder) -> None:
        recorder.record(evicted(namespace))
        recorder.record(evicted(namespace))

    record(api_sandbox.kubeconfig, use, now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    (event,) = read(api_sandbox, namespace)
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert event["series"] == {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}


def test_a_deleted_event_is_created_again(
    api_sandbox: Sandbox, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(recorder: EventRecorder) -> None:
        recorder.record(evicted(namespace))
        await until(lambda: len(read(api_sandbox, namespace)) == 1)
        events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        await asyncio.to_thread(api_sandbox.api.request, "DELETE", events)
        recorder.record(evicted(namespace))
        await until(lambda: "could not be written" in caplog.text)
        recorder.record(evicted(namespace))
        await until(lambda: len(read(api_sandbox, namespace)) == 1)

    record(api_sandbox.kubeconfig, use, count_interval_seconds=0.1)


def test_without_permission_to_write_events_one_line_is_logged(
    api_sandbox: Sandbox, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    account = {"metadata": {"name": "nobody"}}
    api_sandbox.api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    kubeconfig = api_sandbox.kubeconfig_for_service_account(namespace, "nobody")

    async def use(recorder: EventRecorder) -> None:
        for n in range(5):
            recorder.record(evicted(namespace, note=str(n)))

    record(kubeconfig, use)
    assert read(api_sandbox, namespace) == []
    (logged,), line = caplog.records, cast("dict[str, Any]", caplog.records[0].msg)
    assert (logged.levelname, str(line["regarding"])) == ("WARNING", f"Deployment {namespace}/web")
    assert line["error"].startswith("403 events.events.k8s.io is forbidden")
    assert "cannot create resource" in line["error"]


def test_a_rejected_event_does_not_stop_the_others(
    api_sandbox: Sandbox, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Event(regarding=deployment(namespace), reason="Broken", action="Break", note=None)  # type: ignore[arg-type]  # as a bug would

    async def use(recorder: EventRecorder) -> None:
        recorder.record(broken)
        recorder.record(evicted(namespace))
        await until(lambda: len(read(api_sandbox, namespace)) == 1)

    record(api_sandbox.kubeconfig, use)
    assert "An Event could not be written" in caplog.text
