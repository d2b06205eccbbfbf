"""Log lines: ours, Kopf's, aiohttp's and the Kubernetes client's, all alike.

One formatter sits on the root logger of the standard library. Lines made through `get_logger` and lines made by
libraries meet there, are cleaned of credentials, and come out as one JSON object a line, or as coloured text on a
terminal.
Nothing else is configured: no state of structlog's is global.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, TextIO, cast

from respread.lean_imports import hidden
from respread.telemetry.redaction import redact, redact_fields

with hidden("rich", "better_exceptions"):
    import structlog
    from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger


class LogFormat(StrEnum):
    """How lines are written."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least severe lines to write."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# These write whole request and response bodies at DEBUG, which nobody asks for who asks for our decisions in detail.
_LEAST_LEVELS = (("kubernetes", logging.INFO), ("asyncio", logging.INFO), ("urllib3", logging.INFO))

# What Kopf adds to a record for its own use; its reference to the object is kept.
_KOPF_INTERNALS = ("settings", "k8s_skip")


def configure_logging(stream: TextIO, *, log_format: LogFormat | None = None, level: LogLevel = LogLevel.INFO) -> None:
    """Send the lines of the whole process to `stream`; earlier handlers of the root logger are removed.

    Args:
        stream: Where lines go, usually standard error.
        log_format: None chooses text if `stream` is a terminal and JSON otherwise.
        level: The least severe lines to write.
    """
    chosen = log_format or (LogFormat.CONSOLE if stream.isatty() else LogFormat.JSON)
    handler = _LineHandler(stream)
    handler.setFormatter(make_formatter(chosen, colors=stream.isatty()))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name, least_level in _LEAST_LEVELS:
        logging.getLogger(name).setLevel(max(least_level, logging.getLogger().level))
    logging.captureWarnings(capture=True)


class _LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines; one that cannot be made costs no more than itself."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the standard library's
        """Say that a line was lost, without its content: the base class prints all of it, credentials included."""
        with contextlib.suppress(OSError, ValueError):  # the stream itself is what fails: nobody is left to tell
            print(f"A log line of {record.name} ({record.levelname}) was lost: {sys.exception()!r}", file=self.stream)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of that name, usually a module's `__name__`; fields are given by keyword or bound."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger


def make_formatter(log_format: LogFormat, *, colors: bool) -> structlog.stdlib.ProcessorFormatter:
    """Return the formatter of every line; `colors` matters to the console format only."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
        processors=[
            _name_the_object,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.ExceptionRenderer(
                _describe_exception if log_format is LogFormat.JSON else _format_exception
            ),
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _redact_line,
            *(_json_renderers() if log_format is LogFormat.JSON else _console_renderers(colors=colors)),
        ],
    )


def _json_renderers() -> tuple[Processor, ...]:
    return (
        _lead_with_what_every_line_has,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    )


def _console_renderers(*, colors: bool) -> tuple[Processor, ...]:
    return (
        _join_the_object,
        structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback, pad_event_to=0),
    )


def _name_the_object(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Turn the reference that Kopf puts on a record into the field `object`."""
    for name in _KOPF_INTERNALS:
        fields.pop(name, None)
    reference = fields.pop("k8s_ref", None)
    if isinstance(reference, MutableMapping):
        fields["object"] = {name: value for name, value in reference.items() if value}
    return fields


def _join_the_object(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Write the object as people do, `Pod default/web-1`."""
    reference = fields.get("object")
    if isinstance(reference, dict):
        name = "/".join(str(reference[part]) for part in ("namespace", "name") if part in reference)
        fields["object"] = f"{reference.get('kind', '')} {name}".strip()
    return fields


def _redact_line(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    return cast("EventDict", redact_fields(fields))


def _lead_with_what_every_line_has(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Order the fields for a person who reads raw JSON."""
    return {name: fields.pop(name) for name in ("timestamp", "level", "logger", "event")} | dict(fields)


def _describe_exception(exc_info: ExcInfo) -> dict[str, Any]:
    exception_type, exception, _ = exc_info
    return {
        "type": f"{exception_type.__module__}.{exception_type.__qualname__}".removeprefix("builtins."),
        "message": redact(exception),
        "traceback": _format_exception(exc_info),
    }


def _format_exception(exc_info: ExcInfo) -> str:
    # Without the values of local variables, which may be anything.
    return "".join(traceback.format_exception(*exc_info)).rstrip()
