"""Only complete lines of a watch reach Kopf, and only the error that makes Kopf list again."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol
from hypothesis import given
from hypothesis import strategies as st

from respread.handlers import watch_stream
from respread.handlers.informer import Backlog
from respread.handlers.watch_stream import whole_lines
from respread.kube.retry import Retry
from tests.informer_parts import Parts, pod
from tests.processes import wait_until


def line(event_type: str, **body: Any) -> bytes:
    document = {"type": event_type, "object": body}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


# In the format of the output, so that equal lines have equal bytes.
EVENT = line("ADDED", metadata={"name": "web"}, apiVersion="v1", kind="Pod")
DELETION = line("DELETED", metadata={"name": "é✓"}, apiVersion="v1", kind="Pod")
BOOKMARK = line("BOOKMARK", metadata={"resourceVersion": "7"})
GONE = line("ERROR", kind="Status", code=410, message="too old resource version: 1 (7)")
FAILED = line("ERROR", kind="Status", code=500, message="etcdserver: leader changed")


class Watch:
    """A stream, and its input."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.parts = Parts()
        self.retry = Retry(least_seconds=0.001, greatest_seconds=0.002)
        protocol = BaseProtocol(loop)
        protocol.connection_made(asyncio.Transport())  # the protocol can only wait while it is connected
        self.content = aiohttp.StreamReader(protocol, 2**16, loop=loop)
        self.stream = whole_lines(self.content, self.parts.informer("pods"), self.retry)

    def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.content.feed_data(chunk)

    async def rest(self) -> list[bytes]:
        """End the stream, and return its whole output."""
        self.content.feed_eof()
        return [chunk async for chunk in self.stream.iter_chunked(2**20)]


@pytest.mark.parametrize("cut_off", [b"", BOOKMARK[:-5]])
async def test_complete_lines_pass_unchanged_and_a_last_one_that_was_cut_off_is_dropped(cut_off: bytes) -> None:
    watch = Watch()
    watch.send(EVENT, BOOKMARK + EVENT, cut_off)
    assert b"".join(await watch.rest()) == EVENT + BOOKMARK + EVENT


async def test_a_line_is_delivered_once_it_is_complete() -> None:
    watch = Watch()
    chunks = watch.stream.iter_chunked(2**20)
    watch.send(EVENT + BOOKMARK[:9])
    assert await anext(chunks) == EVENT
    rest = asyncio.ensure_future(anext(chunks))
    watch.send(BOOKMARK[9:20])
    await asyncio.sleep(0.2)  # longer than it collects what comes together
    watch.send(BOOKMARK[20:])
    assert await asyncio.wait_for(rest, 30) == BOOKMARK


async def test_any_data_counts_as_heard() -> None:
    watch = Watch()
    (before,) = (age for kind, age in watch.parts.health.ages_seconds().items() if kind == "pods")
    await asyncio.sleep(0.01)
    watch.send(BOOKMARK)
    await watch.rest()
    ages = watch.parts.health.ages_seconds()
    assert ages["pods"] < ages["nodes"]
    assert before < ages["nodes"]


async def test_the_error_for_an_expired_resource_version_passes_unchanged() -> None:
    watch = Watch()
    watch.send(EVENT, GONE)
    chunks = await watch.rest()
    assert [json.loads(each) for each in b"".join(chunks).splitlines()] == [json.loads(EVENT), json.loads(GONE)]
    assert not watch.retry.failing


async def test_any_other_error_is_delivered_as_410_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    watch.send(EVENT + FAILED)
    event, error = (json.loads(each) for each in b"".join(await watch.rest()).splitlines())
    assert event == json.loads(EVENT)
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    assert "etcdserver: leader changed" in caplog.text


async def test_consecutive_errors_increase_the_wait_until_an_event_arrives() -> None:
    retry = Retry(least_seconds=0.1, greatest_seconds=10)
    waits: list[float] = []
    loop = asyncio.get_running_loop()
    for _ in range(4):
        watch = Watch()
        watch.stream = whole_lines(watch.content, watch.parts.informer("pods"), retry)
        watch.send(FAILED)
        start = loop.time()
        await watch.rest()
        waits.append(loop.time() - start)
    assert all(after > before for before, after in pairwise(waits[::2]))
    assert retry.failing
    watch = Watch()
    watch.stream = whole_lines(watch.content, watch.parts.informer("pods"), retry)
    watch.send(EVENT)
    await watch.rest()
    assert not retry.failing


async def test_an_error_without_a_status_is_an_error() -> None:
    watch = Watch()
    watch.send(b'{"type":"ERROR","object":null}\n')
    (error,) = await watch.rest()
    assert json.loads(error) == {"type": "ERROR", "object": {"code": 410}}


@pytest.mark.parametrize(
    "spelling", [b'{"type": "ERROR", "object": {"code": 410}}\n', b'{"object":{"code":410},"type":"ERROR"}\n']
)
async def test_an_error_event_is_recognized_in_any_json_formatting(spelling: bytes) -> None:
    """A proxy may reformat JSON. Kopf would end the process on an error that is not a 410."""
    watch = Watch()
    watch.send(EVENT + spelling)
    _, error = b"".join(await watch.rest()).splitlines()
    assert json.loads(error) == {"type": "ERROR", "object": {"code": 410}}


@pytest.mark.parametrize(
    "nonsense",
    [
        b'{"type":"BOOKMARK","object":5}\n',
        b'{"type":"BOOKMARK"}\n',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":5}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n',
        b"\xff\xfe\n",
    ],
)
async def test_malformed_lines_never_reach_kopf(nonsense: bytes) -> None:
    watch = Watch()
    watch.send(EVENT + nonsense)
    chunks = watch.stream.iter_chunked(2**20)
    assert await anext(chunks) == EVENT
    with pytest.raises(aiohttp.ClientPayloadError):
        await anext(chunks)


async def test_an_object_that_contains_the_text_of_an_error_is_not_an_error() -> None:
    watch = Watch()
    event = line("BOOKMARK", metadata={"annotations": {"log": '\n{"type":"ERROR"'}})
    watch.send(EVENT + event)
    assert b"".join(await watch.rest()) == EVENT + event


async def test_a_malformed_line_ends_the_watch_after_the_lines_before_it(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    watch.send(EVENT + b"<html>\n" + EVENT)
    chunks = watch.stream.iter_chunked(2**20)
    assert await anext(chunks) == EVENT
    with pytest.raises(aiohttp.ClientPayloadError, match="not an event of pods"):
        await anext(chunks)
    assert watch.retry.failing
    assert "A line of a watch can't be read" in caplog.text


async def test_closing_the_response_ends_a_waiting_reader() -> None:
    watch = Watch()
    waiting = asyncio.ensure_future(anext(watch.stream.iter_chunked(2**20)))
    await asyncio.sleep(0)
    content: Any = watch.stream  # aiohttp's view of the stream
    assert content.exception() is None
    content.set_exception(aiohttp.ClientConnectionError("closed"))
    with pytest.raises(aiohttp.ClientConnectionError):
        await waiting


async def test_only_the_last_of_several_events_in_one_chunk_passes() -> None:
    watch = Watch()
    watch.send(EVENT + DELETION + BOOKMARK + DELETION + EVENT, EVENT + FAILED + EVENT)
    *passed, error = b"".join(await watch.rest()).splitlines(keepends=True)
    assert passed == [DELETION, BOOKMARK, EVENT]
    assert json.loads(error)["object"]["code"] == 410


@given(st.lists(st.sampled_from([b"event", b"deletion", b"bookmark"]), max_size=12), st.data())
def test_every_event_is_applied_in_order_however_chunks_are_split(whats: list[bytes], data: st.DataObject) -> None:
    lines = []
    expected: dict[str, str] = {}
    for version, what in enumerate(whats, start=1):
        name = data.draw(st.sampled_from(["web", "api"]))
        if what == b"bookmark":
            lines.append(line("BOOKMARK", metadata={"resourceVersion": str(version)}))
            continue
        expected.pop(name, None)
        if what == b"event":
            expected[name] = f"node-{version}"
        body = pod(name, version)
        body["spec"]["nodeName"] = f"node-{version}"
        lines.append(line("DELETED" if what == b"deletion" else "MODIFIED", **body))
    sent = b"".join(lines) + EVENT[:3]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=8)))

    async def scenario() -> None:
        watch = Watch()
        informer = watch.parts.informer("pods")
        passed: list[bytes] = []
        for start, end in pairwise([0, *cuts, len(sent)]):
            watch.send(sent[start:end])
            await asyncio.sleep(0)
        for chunk in await watch.rest():
            assert chunk.endswith(b"\n")
            passed.extend(chunk.splitlines())
        events = [json.loads(each) for each in passed]
        assert [each["object"]["metadata"]["resourceVersion"] for each in events[-1:]] == [str(len(whats))] * bool(
            whats
        )
        changes = [each for each in events if each["type"] != "BOOKMARK"]
        for each in data.draw(st.permutations(changes)):
            informer.take_event(each["object"], deleted=each["type"] == "DELETED")
        pods = watch.parts.informers.state.snapshot.pods
        assert {key.name: each.node_name for key, each in pods.items()} == expected
        assert informer.lag_seconds() == 0

    asyncio.run(scenario())


async def test_the_watch_is_behind_while_received_data_is_unread() -> None:
    seconds, beyond = [100.0], [0]
    watch = Watch()
    informer = watch.parts.informer("pods")
    informer.backlog = Backlog(clock=lambda: seconds[0])
    watch.stream = whole_lines(watch.content, informer, watch.retry, lambda: beyond[0])
    watch.send(BOOKMARK, BOOKMARK)
    chunks = watch.stream.iter_chunked(len(BOOKMARK))
    await anext(chunks)
    seconds[0] += 5
    await anext(chunks)
    seconds[0] += 2
    beyond[0] = len(BOOKMARK)  # the next bookmark is still in the socket buffer
    third = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0)
    assert informer.lag_seconds() == 2  # everything was read that had come when the second was
    beyond[0] = 0
    watch.send(BOOKMARK)
    await third
    assert informer.lag_seconds() == 0
    fourth = asyncio.ensure_future(anext(chunks))
    seconds[0] += 60
    await asyncio.to_thread(wait_until, lambda: informer.lag_seconds() == 0, "all to be read")
    watch.send(BOOKMARK)
    await fourth


async def test_events_that_follow_others_are_collected_for_a_moment() -> None:
    """Each time that some are passed on costs Kopf as much as reading a few."""
    watch = Watch()
    chunks = watch.stream.iter_chunked(2**20)
    watch.send(EVENT)
    assert await anext(chunks) == EVENT  # at once
    following = asyncio.ensure_future(anext(chunks))
    for _ in range(3):
        watch.send(EVENT)
        await asyncio.sleep(0)
    watch.send(DELETION)
    assert await following == DELETION


def heartbeats(watch: Watch, versions: range) -> list[bytes]:
    """Return events that change only the version of a listed pod."""
    watch.parts.list(pod("web", 5), version=5)
    return [line("MODIFIED", **pod("web", version)) for version in versions]


async def test_heartbeats_do_not_reach_kopf_but_events_among_them_do() -> None:
    watch = Watch()
    first, second, third = heartbeats(watch, range(6, 9))
    watch.send(first, second + EVENT, third)
    passed = [json.loads(each) for each in b"".join(await watch.rest()).splitlines()]
    (event,) = passed
    assert event["type"] != "BOOKMARK"


async def test_kopf_receives_an_occasional_bookmark_during_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted watch continues from the bookmark, and no watch counts as dead."""
    monkeypatch.setattr(watch_stream, "_TOLD_SECONDS", 0.0)
    watch = Watch()
    watch.send(*heartbeats(watch, range(6, 9)))
    passed = [json.loads(each) for each in b"".join(await watch.rest()).splitlines()]
    assert {each["type"] for each in passed} == {"BOOKMARK"}
    assert passed[-1]["object"]["metadata"]["resourceVersion"] == "8"
