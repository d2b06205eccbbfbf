"""Removes credentials from all log lines.

Libraries log what they receive: requests with their headers, responses with their bodies, errors that quote either. So
every line is cleaned once, just before it is rendered, and not by each caller, who may forget it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeAlias

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
    return {str(name): _redact_field(str(name), value) for name, value in fields.items()}


def _redact_field(name: str, value: object) -> Loggable:
    if value is not None and _SECRET_NAME.search(name):
        return REDACTED
    return redact(value)
