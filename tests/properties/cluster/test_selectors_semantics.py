"""Compiled selectors compared with the API's documentation."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.cluster.selectors import Selector, compile_selector, requirement

KEYS = st.sampled_from(["app", "tier", "example.com/zone"])
VALUES = st.sampled_from(["", "a", "b", "c"])
LABELS = st.dictionaries(KEYS, VALUES)
EXPRESSIONS = st.builds(
    LabelSelectorRequirement,
    KEYS,
    st.sampled_from(["In", "NotIn"]),
    st.lists(VALUES, min_size=1, max_size=4).map(tuple),
) | st.builds(LabelSelectorRequirement, KEYS, st.sampled_from(["Exists", "DoesNotExist"]))
SELECTORS = st.builds(LabelSelector, LABELS.map(Map), st.lists(EXPRESSIONS, max_size=4).map(tuple))


def holds(expression: LabelSelectorRequirement, labels: dict[str, str]) -> bool:
    match expression.operator:
        case "In":
            return expression.key in labels and labels[expression.key] in expression.values
        case "NotIn":
            return not (expression.key in labels and labels[expression.key] in expression.values)
        case "Exists":
            return expression.key in labels
        case "DoesNotExist":
            return expression.key not in labels


def selects(selector: LabelSelector, labels: dict[str, str]) -> bool:
    return all(item in labels.items() for item in selector.match_labels.items()) and all(
        holds(each, labels) for each in selector.match_expressions
    )


@given(SELECTORS, LABELS)
def test_a_selector_matches_as_documented(selector: LabelSelector, labels: dict[str, str]) -> None:
    compiled = compile_selector(selector)
    assert compiled.matches(labels) == selects(selector, labels)
    assert compiled.matches(Map(labels)) == selects(selector, labels)
    if selects(selector, labels):
        assert set(compiled.required) <= set(labels.items())


@given(SELECTORS, st.randoms(use_true_random=False))
def test_order_repetition_and_form_of_requirements_do_not_matter(selector: LabelSelector, random: Random) -> None:
    expressions = [
        *selector.match_expressions,
        *selector.match_expressions,
        *(LabelSelectorRequirement(key, "In", (value, value)) for key, value in selector.match_labels.items()),
    ]
    random.shuffle(expressions)
    other = compile_selector(LabelSelector(Map(), tuple(expressions)))

    assert other == compile_selector(selector)
    assert hash(other) == hash(compile_selector(selector))
    assert str(other) == str(compile_selector(selector))


@given(SELECTORS, st.lists(EXPRESSIONS, max_size=3), LABELS)
def test_added_requirements_must_hold_too(
    selector: LabelSelector, added: list[LabelSelectorRequirement], labels: dict[str, str]
) -> None:
    both = compile_selector(selector).with_requirements(
        requirement(each.key, each.operator, each.values) for each in added
    )
    assert isinstance(both, Selector)
    assert both.matches(labels) == (selects(selector, labels) and all(holds(each, labels) for each in added))
