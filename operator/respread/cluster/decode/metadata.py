"""Parts of the JSON that all kinds share: metadata, quantities and selectors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

from respread.api.label_selector import LabelSelector
from respread.cluster.errors import FieldError
from respread.cluster.quantity import QuantityError, parse_nano
from respread.cluster.selectors import SelectorError, compile_selector

WireAmounts: TypeAlias = dict[str, str | int | float]
"""Quantities by resource name. The API accepts plain numbers as well as strings."""


Timestamp: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time of the API, which always has a time zone."""


class WireCondition(msgspec.Struct, gc=False):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class WireIdentity(msgspec.Struct, rename="camel", omit_defaults=True):
    """The parts of `metadata` that tell which object it is, and which version of it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class WireMetadata(msgspec.Struct, rename="camel"):
    """The parts of `metadata` that Respread reads for every kind."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: msgspec.Raw = msgspec.Raw()
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    generation: int = 0


def nano_amounts(amounts: Mapping[str, str | int | float] | None, path: str) -> dict[str, int]:
    """Return quantities in billionths of a unit.

    Raises:
        FieldError: one of them is not a quantity. The path is that of this one.
    """
    if not amounts:
        return {}
    nano: dict[str, int] = {}
    for name, amount in amounts.items():
        try:
            nano[name] = parse_nano(amount if isinstance(amount, str) else str(amount))
        except QuantityError as error:
            raise FieldError(f"{path}[{name}]", f"{amount!r:.60} is not a quantity: {error}") from error
    return nano


def checked_selector(selector: LabelSelector | None, path: str) -> LabelSelector | None:
    """Return a selector unchanged.

    Raises:
        FieldError: the API would reject it.
    """
    try:
        compile_selector(selector)
    except SelectorError as error:
        raise FieldError(path, str(error)) from error
    return selector
