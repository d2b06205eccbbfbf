"""The clients that may use the page's server."""

from __future__ import annotations

import pytest

from respread_cli.ui.guard import HEADERS, Guard, new_token

GUARD = Guard("secret", 8000)
BROWSER = {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8000"},
        {"Host": "localhost:8000"},
        BROWSER,
        BROWSER | {"Origin": "http://127.0.0.1:8000"},
        {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a link in a chat
    ],
)
def test_requests_of_the_users_browser_are_answered(headers: dict[str, str]) -> None:
    assert GUARD.refusal(headers, "secret") is None


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        (BROWSER, "wrong"),
        (BROWSER, ""),
        ({}, "secret"),
        (BROWSER | {"Host": "attacker.example:8000"}, "secret"),  # DNS rebinding
        (BROWSER | {"Host": "127.0.0.1:8001"}, "secret"),
        (BROWSER | {"Origin": "http://attacker.example"}, "secret"),
        (BROWSER | {"Origin": "null"}, "secret"),
        (BROWSER | {"Sec-Fetch-Site": "cross-site"}, "secret"),
        (BROWSER | {"Sec-Fetch-Site": "same-site"}, "secret"),  # another port of this machine
    ],
)
def test_other_requests_are_rejected(headers: dict[str, str], token: str) -> None:
    assert GUARD.refusal(headers, token) is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:9000"},  # kubectl port-forward 9000:8765
        {"Host": "localhost:8765", "Origin": "http://localhost:8765"},
        {"Host": "page.example", "Origin": "https://page.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_page_without_token_answers_forwarded_ports_and_the_names_of_proxies(headers: dict[str, str]) -> None:
    assert Guard(None, 8765, ["page.example"]).refusal(headers, "") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "10.0.0.1:8765"},
        {"Host": "attacker.example:8765"},  # DNS rebinding
        {"Host": "127.0.0.1:9000", "Origin": "http://attacker.example"},
        {"Host": "127.0.0.1:9000", "Origin": "http://127.0.0.1:3000"},  # another program's page on the same machine
        {"Host": "page.example", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_page_without_token_refuses_other_names_and_sites(headers: dict[str, str]) -> None:
    assert Guard(None, 8765, ["page.example"]).refusal(headers, "") is not None


def test_tokens_are_long_and_unique() -> None:
    assert len({new_token() for _ in range(10)}) == 10
    assert len(new_token()) >= 32


def test_only_scripts_of_the_page_are_allowed() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
