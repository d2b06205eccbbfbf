"""Label selectors: matching, equality, printing, and errors."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.cluster.selectors import (
    NOTHING,
    Selector,
    SelectorError,
    compile_selector,
    requirement,
    selector_of_labels,
)

EVERYTHING = Selector((), (), ())
"""What an empty selector matches."""

WEB = Map(app="web", tier="front")


def selector(*expressions: tuple[str, Any, list[str]], **labels: str) -> LabelSelector:
    return LabelSelector(
        Map(labels), tuple(LabelSelectorRequirement(key, op, tuple(values)) for key, op, values in expressions)
    )


def test_an_absent_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert compile_selector(None) is NOTHING
    assert not NOTHING.matches({})
    assert not NOTHING.matches(WEB)
    assert NOTHING.matches_nothing
    assert not NOTHING.matches_everything

    assert compile_selector(LabelSelector()) == EVERYTHING
    assert EVERYTHING.matches({})
    assert EVERYTHING.matches(WEB)
    assert EVERYTHING.matches_everything
    assert EVERYTHING != NOTHING


@pytest.mark.parametrize(
    ("given", "matches"),
    [
        (selector(app="web"), True),
        (selector(app="web", tier="back"), False),
        (selector(("app", "In", ["api", "web"])), True),
        (selector(("app", "In", ["api"])), False),
        (selector(("zone", "In", ["a"])), False),
        (selector(("app", "NotIn", ["web"])), False),
        (selector(("app", "NotIn", ["api"])), True),
        (selector(("zone", "NotIn", ["a"])), True),
        (selector(("app", "Exists", [])), True),
        (selector(("zone", "Exists", [])), False),
        (selector(("app", "DoesNotExist", [])), False),
        (selector(("zone", "DoesNotExist", [])), True),
        (selector(("app", "Exists", []), app="web"), True),
        (selector(("app", "NotIn", ["web"]), app="web"), False),
        (selector(("app", "In", [""])), False),
    ],
    ids=lambda each: str(compile_selector(each)) if isinstance(each, LabelSelector) else "",
)
def test_all_requirements_must_hold(given: LabelSelector, *, matches: bool) -> None:
    assert compile_selector(given).matches(WEB) is matches


def test_an_empty_value_is_a_value() -> None:
    assert compile_selector(selector(app="")).matches({"app": ""})
    assert not compile_selector(selector(app="")).matches({})


def test_equivalent_selectors_are_equal() -> None:
    same = [
        selector(("tier", "In", ["a", "b"]), app="web"),
        selector(("app", "In", ["web"]), ("tier", "In", ["b", "a"])),
        selector(("tier", "In", ["b", "a", "b"]), ("app", "In", ["web"]), ("app", "In", ["web"]), app="web"),
    ]
    compiled = {compile_selector(each) for each in same}
    assert len(compiled) == 1
    assert compiled.pop() != compile_selector(selector(app="web"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "<nothing>"),
        (selector(), "<everything>"),
        (selector(app="web"), "app=web"),
        (selector(("tier", "In", ["b", "a"]), app="web"), "app=web,tier in (a,b)"),
        (selector(("tier", "NotIn", ["b"])), "tier notin (b)"),
        (selector(("b", "DoesNotExist", []), ("a", "Exists", [])), "a,!b"),
        (selector(app=""), "app="),
    ],
)
def test_a_selector_is_printed_as_kubectl_prints_it(given: LabelSelector | None, text: str) -> None:
    assert str(compile_selector(given)) == text


def test_labels_that_the_api_server_has_merged_are_not_added_twice() -> None:
    plain = compile_selector(selector(app="web"))
    merged = compile_selector(selector(("hash", "In", ["abc"]), app="web"))
    assert plain.with_labels([("hash", "abc")]) == merged
    assert merged.with_labels([("hash", "abc")]) == merged
    assert plain.with_requirements([requirement("hash", "NotIn", ["abc"])]).matches({"app": "web"})
    assert EVERYTHING.with_labels([("hash", "abc")]) == compile_selector(selector(hash="abc"))


def test_the_selector_of_nothing_stays_so_when_labels_are_added() -> None:
    assert NOTHING.with_labels([("app", "web")]) is NOTHING


def test_the_required_labels_of_a_selector_are_known() -> None:
    compiled = compile_selector(selector(("tier", "In", ["a", "b"]), ("zone", "In", ["c"]), app="web"))
    assert compiled.required == (("app", "web"), ("zone", "c"))


def test_labels_in_a_selector_are_not_validated() -> None:
    assert selector_of_labels(Map()) == EVERYTHING
    assert selector_of_labels(Map({"app": "not a label value!"})).matches({"app": "not a label value!"})
    assert selector_of_labels(Map(app="web")) == compile_selector(selector(app="web"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (selector(("app", "Is", ["web"])), "matchExpressions[0]: 'Is' is not an operator of a label selector"),
        (selector(("a", "Exists", []), ("app", "In", [])), "matchExpressions[1]: operator In of key 'app' needs"),
        (selector(("app", "NotIn", [])), "matchExpressions[0]: operator NotIn of key 'app' needs"),
        (selector(("app", "Exists", ["web"])), "matchExpressions[0]: operator Exists of key 'app' takes no values"),
        (selector(("", "Exists", [])), "matchExpressions[0]: '' is not a label key: it is empty"),
        (selector(("a/", "Exists", [])), "'a/' is not a label key: there is no name after the '/'"),
        (selector(("/a", "Exists", [])), "'/a' is not a label key: its prefix must be a DNS subdomain"),
        (selector(("A.b/c", "Exists", [])), "'A.b/c' is not a label key: its prefix must be a DNS subdomain"),
        (selector(("a/b/c", "Exists", [])), "'a/b/c' is not a label key: its prefix must be a DNS subdomain"),
        (selector((f"{'a' * 254}/b", "Exists", [])), "its prefix must be a DNS subdomain of at most 253"),
        (selector(("-a", "Exists", [])), "'-a' is not a label key: it must be made of letters"),
        (selector(("a" * 64, "Exists", [])), "is not a label key: it is longer than 63 characters"),
        (selector(app="no spaces"), "matchLabels[app]: 'no spaces', wanted for key 'app', is not a label value"),
        (selector(app="a" * 64), "is not a label value: it is longer than 63 characters"),
        (selector(app="web\n"), "is not a label value: it must be made of letters"),
        (selector(("app", "In", ["web", "-"])), "matchExpressions[0]: '-', wanted for key 'app', is not a label value"),
    ],
)
def test_an_invalid_selector_has_an_error_message(given: LabelSelector, message: str) -> None:
    with pytest.raises(SelectorError) as raised:
        compile_selector(given)
    assert message in str(raised.value)


@pytest.mark.parametrize("key", ["a", "A_b.c-9", "example.com/a", "a" * 63, f"{'a' * 253}/b", "x-y.z/0"])
def test_label_keys_of_the_api_are_accepted(key: str) -> None:
    assert requirement(key, "Exists").key == key
