"""What a field's type defines beyond its Python type: patterns, bounds and rules, for both the CRD and our decoder.

`msgspec.Meta` holds descriptions, numeric bounds and patterns, as msgspec knows them. `extra` holds the bounds of
durations as `DurationBounds`. `extra_json_schema` holds the keywords that only the API server enforces (list types,
sizes, CEL rules). `respread.api.schema` generates the CRDs from all of these. `LabelSelector` is the type that
policies share with pods and budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple

import durationpy
import msgspec
from immutables import Map

LABEL_VALUE_PATTERN: Final = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
LABEL_KEY_PATTERN: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
DURATION_PATTERN: Final = r"^(0|([0-9]{1,5}(\.[0-9]{1,3})?(h|m|s)|[0-9]{1,5}ms){1,4})$"
"""The supported part of Go's duration syntax: not negative, and no finer than a millisecond."""
PERCENTAGE_PATTERN: Final = r"^([1-9][0-9]?|100)%$"

MAX_LABEL_VALUE_LENGTH: Final = 63
MAX_LABEL_PREFIX_LENGTH: Final = 253
MAX_LABEL_KEY_LENGTH: Final = MAX_LABEL_PREFIX_LENGTH + 1 + 63
"""A DNS subdomain, a slash and a name of at most 63 characters."""

EXPECTS: Final = "expects"
"""The key of `Meta.extra` for a description of the expected value, if a pattern or a union would not be readable."""
DURATION: Final = "duration"
"""The key of `Meta.extra` for the `DurationBounds` of a field."""


class DurationBounds(NamedTuple):
    """The minimum and maximum duration of a field, both inclusive."""

    least: timedelta
    greatest: timedelta


def expects(words: str) -> dict[str, Any]:
    """Return the `extra` argument of `msgspec.Meta` for a field whose value must be `words`."""
    return {EXPECTS: words}


MAX_COUNT: Final = 2**31 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC)
Moment = Annotated[datetime, msgspec.Meta(tz=True, extra_json_schema={"pattern": r"^(19[7-9][0-9]|20[0-9]{2})-"})]
"""A time in a status, from `EARLIEST` to `LATEST`: far enough from the ends of the range of `datetime`."""

LabelKey = Annotated[
    str,
    msgspec.Meta(
        pattern=LABEL_KEY_PATTERN,
        max_length=MAX_LABEL_KEY_LENGTH,
        extra=expects("a label key, such as topology.kubernetes.io/zone"),
    ),
]
LabelValue = Annotated[
    str,
    msgspec.Meta(
        pattern=LABEL_VALUE_PATTERN,
        max_length=MAX_LABEL_VALUE_LENGTH,
        extra=expects("a label value: at most 63 letters, digits, dashes, underscores and dots"),
    ),
]
Percentage = Annotated[str, msgspec.Meta(pattern=PERCENTAGE_PATTERN, max_length=4)]


def duration(description: str, least: str, greatest: str) -> msgspec.Meta:
    """Describe a field that is a Go duration string in JSON and a `timedelta` in Python.

    The bounds are Go durations too.
    """
    bounds = DurationBounds(parse_duration(least), parse_duration(greatest))
    return msgspec.Meta(description=description, extra={DURATION: bounds})


def rule(expression: str, message: str) -> dict[str, Any]:
    """Return a CEL rule in the form of the CRD schema, with the API server's message if it is violated."""
    return {"x-kubernetes-validations": [{"rule": expression, "message": message}]}


def described(description: str, schema: Mapping[str, Any] | None = None) -> msgspec.Meta:
    """Describe a field, with the schema keywords that only the API server enforces."""
    return msgspec.Meta(description=description, extra_json_schema=None if schema is None else dict(schema))


def parse_duration(text: str) -> timedelta:
    """Read a Go duration such as `90s` or `1h30m`.

    Raises:
        ValueError: if it can't be read. durationpy's error is a subclass.
    """
    return durationpy.from_str(text)


def format_duration(value: timedelta) -> str:
    """Return a Go duration that the API server accepts."""
    return durationpy.to_str(value)


class Problem(msgspec.Struct, frozen=True):
    """An error in a policy. The policy evicts nothing until it is fixed."""

    field: str
    """The field, in the form for `kubectl explain`: `spec.windows[0].timeZone`."""
    message: str
    """What is wrong there, and what to do."""

    def __str__(self) -> str:
        """Return both, as in a condition's message or in a line of an error."""
        return f"{self.field}: {self.message}"


class UnknownField(Problem, frozen=True):
    """A field that does not exist. Our policies reject it. Readers of Kubernetes' own objects ignore it."""


SelectorOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

# All limits here are keywords of the CRD schema and not constraints of msgspec, because this type also reads the
# selectors of pods and budgets, for which the API server has its own limits.
_VALUE_SCHEMA = {"pattern": LABEL_VALUE_PATTERN, "maxLength": MAX_LABEL_VALUE_LENGTH}


class LabelSelectorRequirement(msgspec.Struct, frozen=True, gc=False):
    """One `matchExpressions` entry."""

    key: Annotated[
        str, described("The label's key.", {"pattern": LABEL_KEY_PATTERN, "maxLength": MAX_LABEL_KEY_LENGTH})
    ]
    operator: Annotated[SelectorOperator, described("How the label's value relates to `values`.")]
    values: Annotated[
        tuple[Annotated[str, msgspec.Meta(extra_json_schema=_VALUE_SCHEMA)], ...],
        described(
            "The values to compare with: at least one for In and NotIn, none for Exists and DoesNotExist.",
            {"maxItems": 100, "x-kubernetes-list-type": "atomic"},
        ),
    ] = ()


class LabelSelector(msgspec.Struct, frozen=True, weakref=True, rename="camel"):
    """`matchLabels` and `matchExpressions`, all of which must match. An empty selector selects everything.

    `None` stands for an absent selector. Whether that means "nothing" or "everything" depends on the field.
    """

    match_labels: Annotated[
        Map[str, str],
        described(
            "Labels that must be there with exactly these values.",
            {
                "maxProperties": 32,
                "additionalProperties": {"type": "string", **_VALUE_SCHEMA},
                **rule(
                    f"self.all(key, size(key) <= {MAX_LABEL_KEY_LENGTH} && key.matches(r'{LABEL_KEY_PATTERN}'))",
                    "every key must be a label key: a name of at most 63 characters, or a DNS name, a / and such a "
                    "name",
                ),
            },
        ),
    ] = Map()
    match_expressions: Annotated[
        tuple[
            Annotated[
                LabelSelectorRequirement,
                msgspec.Meta(
                    extra_json_schema=rule(
                        "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist",
                    )
                ),
            ],
            ...,
        ],
        described("Requirements on labels that must all hold.", {"maxItems": 32, "x-kubernetes-list-type": "atomic"}),
    ] = ()
