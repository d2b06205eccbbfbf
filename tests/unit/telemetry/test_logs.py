"""Log lines of Respread and of libraries look alike, in either format."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import kopf
import pytest
from kopf._core.actions.loggers import LocalObjectLogger

from respread.cluster.meta import ObjectKey
from respread.telemetry.logs import LogLevel, configure_logging, get_logger


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_line_is_one_json_object_with_its_fields(stream: io.StringIO) -> None:
    configure_logging(stream)
    get_logger("respread.eviction").bind(policy="default").info(
        "Evicted %s", "one", pod=ObjectKey("shop", "web-1"), domains=("a", "b"), skew=3, ratio=0.5, blocked=None
    )
    (line,) = lines(stream)
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    written = datetime.fromisoformat(line.pop("timestamp"))
    assert written.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - written) < timedelta(minutes=1)
    assert line == {
        "level": "info",
        "logger": "respread.eviction",
        "event": "Evicted one",
        "policy": "default",
        "pod": "shop/web-1",
        "domains": ["a", "b"],
        "skew": 3,
        "ratio": 0.5,
        "blocked": None,
    }


def test_a_line_of_kopfs_names_its_object_in_a_field(stream: io.StringIO) -> None:
    configure_logging(stream)
    body = kopf.Body(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web-1", "uid": "1-2"}}
    )
    LocalObjectLogger(body=body, settings=kopf.OperatorSettings()).warning("Handler %r failed.", "on_pod")
    (line,) = lines(stream)
    del line["timestamp"]
    assert line == {
        "level": "warning",
        "logger": "kopf.objects",
        "event": "Handler 'on_pod' failed.",
        "object": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "1-2"},
    }


def test_a_cluster_scoped_object_has_no_namespace_field(stream: io.StringIO) -> None:
    configure_logging(stream)
    body = kopf.Body({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "3"}})
    LocalObjectLogger(body=body, settings=kopf.OperatorSettings()).warning("x")
    assert lines(stream)[0]["object"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "3"}


def test_lines_of_other_libraries_have_the_same_shape(stream: io.StringIO) -> None:
    configure_logging(stream)
    logging.getLogger("aiohttp.server").error("Error handling %s", "request", extra={"remote": "127.0.0.1"})
    (line,) = lines(stream)
    del line["timestamp"]
    assert line == {
        "level": "error",
        "logger": "aiohttp.server",
        "event": "Error handling request",
        "remote": "127.0.0.1",
    }


def raise_error(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("ours", [True, False])
def test_an_exception_is_logged_without_local_variables(stream: io.StringIO, ours: bool) -> None:
    configure_logging(stream)
    only_the_frame_knows = "".join(["in", "visible"])
    try:
        raise_error(PermissionError(len(only_the_frame_knows), "no right to evict"))
    except PermissionError:
        if ours:
            get_logger("respread").exception("Eviction failed")
        else:
            logging.getLogger("respread").exception("Eviction failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert line["exception"]["type"] == "PermissionError"
    assert line["exception"]["message"] == "[Errno 9] no right to evict"
    assert line["exception"]["traceback"].startswith("Traceback (most recent call last):\n")
    assert only_the_frame_knows not in stream.getvalue()


def test_a_terminal_gets_coloured_text() -> None:
    terminal = Terminal()
    configure_logging(terminal)
    get_logger("respread").info("Evicted", pod="web-1")
    assert "\x1b[" in terminal.getvalue()
    assert "Evicted" in terminal.getvalue()


def test_the_console_format_has_no_colours_when_redirected(stream: io.StringIO) -> None:
    configure_logging(stream, log_format="console")
    body = kopf.Body({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web-1"}})
    LocalObjectLogger(body=body, settings=kopf.OperatorSettings()).warning("Seen")
    text = stream.getvalue()
    assert "\x1b[" not in text
    assert "[warning" in text
    assert "Seen" in text
    assert "object='Pod shop/web-1'" in text


def test_the_console_format_shows_the_traceback_without_credentials(stream: io.StringIO) -> None:
    configure_logging(stream, log_format="console")
    try:
        raise_error(ValueError("password=correct-horse-battery"))
    except ValueError:
        get_logger("respread").exception("Failed")
    assert "ValueError: password=[REDACTED]" in stream.getvalue()


def test_json_can_be_selected_on_a_terminal() -> None:
    terminal = Terminal()
    configure_logging(terminal, log_format="json")
    get_logger("respread").info("Ready")
    assert lines(terminal)[0]["event"] == "Ready"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_the_level_applies_to_respread_and_to_libraries(
    stream: io.StringIO, level: LogLevel, expected: list[str]
) -> None:
    configure_logging(stream, level=level)
    for each in get_args(LogLevel):
        getattr(get_logger("respread.level"), each)("ours")
        getattr(logging.getLogger("kopf.level"), each)("theirs")
    assert [line["level"] for line in lines(stream) if line["event"] == "ours"] == expected
    assert [line["level"] for line in lines(stream) if line["event"] == "theirs"] == expected


def test_debug_does_not_bring_the_kubernetes_clients_response_bodies(stream: io.StringIO) -> None:
    configure_logging(stream, level="debug")
    logging.getLogger("kubernetes.aio.client.rest").debug("response body: everything")
    assert stream.getvalue() == ""
    configure_logging(stream, level="error")
    logging.getLogger("kubernetes.aio.client.rest").warning("quieter still")
    assert stream.getvalue() == ""


def test_configuring_again_replaces_the_first_configuration(stream: io.StringIO) -> None:
    first = io.StringIO()
    configure_logging(first)
    configure_logging(stream)
    get_logger("respread").info("once")
    assert first.getvalue() == ""
    assert len(lines(stream)) == 1


def test_python_warnings_are_logged(stream: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging(stream)
        warnings.warn("this will go away", DeprecationWarning, stacklevel=1)
    (line,) = lines(stream)
    assert line["logger"] == "py.warnings"
    assert "this will go away" in line["event"]


def test_credentials_never_reach_a_line(stream: io.StringIO) -> None:
    configure_logging(stream)
    jwt = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
    get_logger("respread").info(
        f"Sent Authorization: Bearer {jwt}", headers={"Authorization": f"Bearer {jwt}"}, errors=[ValueError(jwt)]
    )
    logging.getLogger("aiohttp.client").error("%r", {"headers": {"authorization": f"Bearer {jwt}"}})
    logging.getLogger("kopf").error("login", extra={"token": jwt, "info": (jwt,)})
    try:
        raise_error(RuntimeError(jwt))
    except RuntimeError:
        logging.getLogger("kopf").exception("login")
    assert len(lines(stream)) == 4
    assert jwt not in stream.getvalue()
    assert jwt.split(".")[1] not in stream.getvalue()


def test_a_line_that_cannot_be_formatted_is_reported_without_its_content(stream: io.StringIO) -> None:
    configure_logging(stream)
    logging.getLogger("broken").error("a number: %d", "secret-value")
    assert "A log line of broken (ERROR) was lost: TypeError(" in stream.getvalue()
    assert "secret-value" not in stream.getvalue()


def test_a_closed_stream_loses_only_the_line(stream: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(stream)
    stream.close()
    get_logger("respread").info("nobody reads this")
    assert capsys.readouterr().err == ""
    assert sys.exception() is None
