"""The `LabelSelector` of the Kubernetes API, as policies, budgets and constraints carry it."""

from __future__ import annotations

from typing import Literal

import msgspec
from immutables import Map

SelectorOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class LabelSelectorRequirement(msgspec.Struct, frozen=True, gc=False):
    """One `matchExpressions` entry."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`matchLabels` and `matchExpressions`, all of which must hold; empty selects everything.

    A selector that is absent is `None` where this type is used; whether that means "nothing" or "everything" is for the
    field that holds it to say.
    """

    match_labels: Map[str, str] = Map()
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
