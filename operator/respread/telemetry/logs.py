"""Log lines of Respread, Kopf, aiohttp and the Kubernetes client, all in the same form.

One formatter is attached to the root logger of the standard library. Lines from `get_logger` and lines from libraries
both reach it. It removes credentials and writes one JSON object per line, or colored text on a terminal. Nothing else
is configured: structlog has no global state.

Libraries log what they receive: requests with their headers, responses with their bodies, errors that quote either. So
every line is cleaned once, just before it is rendered, and not by each caller, who may forget it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal, TextIO, TypeAlias, cast

from respread.lean_process import hidden

with hidden("rich", "better_exceptions"):
    import structlog
    from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger


REDACTED = "[REDACTED]"

Loggable: TypeAlias = "str | int | float | bool | list[Loggable] | dict[str, Loggable] | None"
"""What JSON can represent."""

_SECRET_NAME = re.compile(
    r"(authorization|cookie|credential|key[_-]?data|passw(or)?d|private[_-]?key|api[_-]?key|secret|token)s?$",
    re.IGNORECASE,
)

_SECRETS = tuple(
    # Each keeps its first group, replaces the rest of its match, and does not match redacted text.
    re.compile(rf"(?P<kept>{kept})(?!\[REDACTED\]){lost}", re.IGNORECASE)
    for kept, lost in (
        # A header or field with a credential, after the scheme if there is one: `Authorization: Bearer x`
        (
            r"""authorization["']?\s*[:=,]\s*+(?:b?["'])?+(?:(?:basic|bearer|digest|negotiate)\s+)?+""",
            r"""[^\s"',;)}\]]+""",
        ),
        # A bearer token on its own
        (r"\bbearer\s+", r"[\w.~+/=-]{8,}"),
        # `token=x`, `"client_secret": "x"`, `client-key-data: x`
        (
            r"""(?:cookie|key[_-]?data|passw(?:or)?d|api[_-]?key|secret|token)["']?\s*[:=]\s*+["']?+""",
            r"""[^\s"',;&)}\]]{8,}""",
        ),
        # A user and password in a URL
        (r"://", r"[^\s/@:]+:[^\s/@]+(?=@)"),
        # A JSON Web Token, such as a ServiceAccount token
        (r"\b", r"eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?"),
        # A token of the EKS exec plugin
        (r"\bk8s-aws-v1\.", r"[\w=-]+"),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----", r"[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"),
    )
)


def redact_text(text: str) -> str:
    """Return `text` with everything that looks like a credential replaced by `[REDACTED]`."""
    for pattern in _SECRETS:
        text = pattern.sub(rf"\g<kept>{REDACTED}", text)
    return text


def redact(value: object) -> Loggable:
    """Return `value` as plain data for JSON, without credentials.

    Mappings lose the values of keys that name a credential. Objects, and named tuples that define `__str__` such as
    ObjectKey, are converted by it.
    """
    match value:
        case float() if not math.isfinite(value):
            return str(value)  # JSON can't represent it.
        case None | bool() | int() | float():
            return value
        case Mapping():
            return redact_fields(value)
        case list() | tuple() | set() | frozenset() if type(value).__str__ is object.__str__:
            return [redact(item) for item in value]
        case _:
            return redact_text(str(value))


def redact_fields(fields: Mapping[str, object]) -> dict[str, Loggable]:
    """Return `fields` redacted. Fields whose name indicates a credential are replaced entirely."""
    return {
        str(name): REDACTED if value is not None and _SECRET_NAME.search(str(name)) else redact(value)
        for name, value in fields.items()
    }


LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]
"""The lowest severity of lines to write."""

# At DEBUG, these write whole request and response bodies, which nobody needs to see our decisions in detail.
_LEAST_LEVELS = (("kubernetes", logging.INFO), ("asyncio", logging.INFO), ("urllib3", logging.INFO))

# What Kopf adds to a record for its own use, except its reference to the object.
_KOPF_INTERNALS = ("settings", "k8s_skip")


def configure_logging(stream: TextIO, *, log_format: LogFormat | None = None, level: LogLevel = "info") -> None:
    """Send the lines of the whole process to `stream`. Earlier handlers of the root logger are removed.

    Without a format, it is text if `stream` is a terminal, and JSON otherwise. `level` is the lowest severity of lines
    to write.
    """
    chosen = log_format or ("console" if stream.isatty() else "json")
    handler = _LineHandler(stream)
    handler.setFormatter(make_formatter(chosen, colors=stream.isatty()))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name, least_level in _LEAST_LEVELS:
        logging.getLogger(name).setLevel(max(least_level, logging.getLogger().level))
    logging.captureWarnings(capture=True)


class _LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines. A line that can't be formatted affects no other."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the standard library's
        """Report that a line was lost, without its content. The base class prints all of it, including credentials."""
        with contextlib.suppress(OSError, ValueError):  # The stream itself fails, so nothing can be reported.
            print(f"A log line of {record.name} ({record.levelname}) was lost: {sys.exception()!r}", file=self.stream)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger with that name, usually a module's `__name__`. Fields are passed as keywords or bound."""
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
    """Return the formatter of every line. `colors` only matters for the console format."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
        processors=[
            _name_the_object,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.ExceptionRenderer(_describe_exception if log_format == "json" else _format_exception),
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _redact_line,
            *(
                (_lead_with_what_every_line_has, structlog.processors.JSONRenderer(ensure_ascii=False))
                if log_format == "json"
                else (_join_the_object, _console_renderer(colors=colors))
            ),
        ],
    )


def _console_renderer(*, colors: bool) -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
    )


def _name_the_object(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Convert the reference that Kopf adds to a record into the field `object`."""
    for name in _KOPF_INTERNALS:
        fields.pop(name, None)
    reference = fields.pop("k8s_ref", None)
    if isinstance(reference, MutableMapping):
        fields["object"] = {name: value for name, value in reference.items() if value}
    return fields


def _join_the_object(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Write the object in readable form, `Pod default/web-1`."""
    reference = fields.get("object")
    if isinstance(reference, dict):
        name = "/".join(str(reference[part]) for part in ("namespace", "name") if part in reference)
        fields["object"] = f"{reference.get('kind', '')} {name}".strip()
    return fields


def _redact_line(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    return cast("EventDict", redact_fields(fields))


def _lead_with_what_every_line_has(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Order the fields for users who read raw JSON."""
    return {name: fields.pop(name) for name in ("timestamp", "level", "logger", "event")} | dict(fields)


def _describe_exception(exc_info: ExcInfo) -> dict[str, Any]:
    exception_type, exception, _ = exc_info
    return {
        "type": f"{exception_type.__module__}.{exception_type.__qualname__}".removeprefix("builtins."),
        "message": redact(exception),
        "traceback": _format_exception(exc_info),
    }


def _format_exception(exc_info: ExcInfo) -> str:
    # Without the values of local variables, which may contain anything.
    return "".join(traceback.format_exception(*exc_info)).rstrip()
