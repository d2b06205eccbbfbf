"""Keep credentials out of log lines, whoever wrote the line.

Libraries log what they were given: requests with their headers, responses with their bodies, errors that quote either.
So every line is cleaned once, just before it is rendered, rather than by each caller that may forget.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeAlias

REDACTED = "[REDACTED]"

Loggable: TypeAlias = "str | int | float | bool | list[Loggable] | dict[str, Loggable] | None"
"""What JSON can say."""

_SECRET_NAME = re.compile(
    r"(authorization|cookie|credential|key[_-]?data|passw(or)?d|private[_-]?key|api[_-]?key|secret|token)s?$",
    re.IGNORECASE,
)

_SECRETS = tuple(
    # Each keeps its first group, loses the rest of what it matches, and does not match what was redacted already.
    re.compile(rf"(?P<kept>{kept})(?!\[REDACTED\]){lost}", re.IGNORECASE)
    for kept, lost in (
        # A header or field that carries a credential, after the scheme if there is one: `Authorization: Bearer x`
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
        # A JSON Web Token, which is what a service account's token is
        (r"\b", r"eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?"),
        # A token of the EKS exec plugin
        (r"\bk8s-aws-v1\.", r"[\w=-]+"),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----", r"[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"),
    )
)


def redact_text(text: str) -> str:
    """Return `text` with what looks like a credential replaced by `[REDACTED]`."""
    for pattern in _SECRETS:
        text = pattern.sub(rf"\g<kept>{REDACTED}", text)
    return text


def redact(value: object) -> Loggable:
    """Return `value` as plain data that JSON can say, without credentials.

    Mappings lose the values of keys that name a credential; objects are turned into text by their own `str`,
    and so are named tuples that define it, such as an ObjectKey.
    """
    match value:
        case float() if not math.isfinite(value):
            return str(value)  # JSON has no word for it
        case None | bool() | int() | float():
            return value
        case Mapping():
            return redact_fields(value)
        case list() | tuple() | set() | frozenset() if type(value).__str__ is object.__str__:
            return [redact(item) for item in value]
        case _:
            return redact_text(str(value))


def redact_fields(fields: Mapping[str, object]) -> dict[str, Loggable]:
    """Return `fields` redacted, those whose name says that they hold a credential entirely."""
    return {str(name): _redact_field(str(name), value) for name, value in fields.items()}


def _redact_field(name: str, value: object) -> Loggable:
    if value is not None and _SECRET_NAME.search(name):
        return REDACTED
    return redact(value)
