"""Label selectors as users type them."""

from __future__ import annotations

import pytest

from respread.cluster.selectors import SelectorError
from respread_cli.selector_text import parse_selector


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", "<everything>"),
        (" ", "<everything>"),
        ("a=b", "a=b"),
        ("a == b , c != d", "a=b,c notin (d)"),
        ("!x,y", "!x,y"),
        ("a in (c,b),d notin ( e )", "a in (b,c),d notin (e)"),
        ("a=", "a="),
        ("a=,b", "a=,b"),
        ("a in ()", "a="),
        ("a in (,b)", "a in (,b)"),
        ("in in (in)", "in=in"),
        ("app.kubernetes.io/name=web", "app.kubernetes.io/name=web"),
    ],
)
def test_a_selector_text_is_parsed(text: str, canonical: str) -> None:
    assert str(parse_selector(text)) == canonical


@pytest.mark.parametrize(
    "text",
    ["=x", "a=b,", "a>1", "a b", "a in b", "a in (b", "a in (b c)", "!", "-a=b", "a=b=c", "a=-b", ",", "a==!b", "!a=b"],
)
def test_a_selector_text_that_the_api_server_rejects_is_an_error(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_selector(text)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("a!=b", {}, True),
        ("a notin (b)", {"a": "c"}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a=b,c", {"a": "b"}, False),
    ],
)
def test_a_parsed_selector_matches_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_selector(text).matches(labels) is matches
