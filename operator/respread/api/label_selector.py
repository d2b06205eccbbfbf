"""The `LabelSelector` type of the Kubernetes API, as policies, budgets and constraints use it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from immutables import Map

from respread.api.fields import (
    LABEL_KEY_PATTERN,
    LABEL_VALUE_PATTERN,
    MAX_LABEL_KEY_LENGTH,
    MAX_LABEL_VALUE_LENGTH,
    described,
    rule,
)

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
