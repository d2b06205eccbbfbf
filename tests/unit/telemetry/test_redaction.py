"""Credentials are redacted in log lines."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import pytest
from immutables import Map

from respread.cluster.meta import ObjectKey
from respread.telemetry.logs import redact, redact_fields, redact_text

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [REDACTED]"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic [REDACTED]"),
        ("{'Authorization': 'Bearer abc', 'Accept': '*/*'}", "{'Authorization': 'Bearer [REDACTED]', 'Accept': '*/*'}"),
        ('{"authorization":"opaque"}', '{"authorization":"[REDACTED]"}'),
        ("(b'Authorization', b'x')", "(b'Authorization', b'[REDACTED]')"),
        ("refused bearer 0123456789abcdef by server", "refused bearer [REDACTED] by server"),
        (f"got {JWT} back", "got [REDACTED] back"),
        ("GET /?token=0123456789abcdef&limit=5", "GET /?token=[REDACTED]&limit=5"),
        ('{"client_secret": "0123456789"}', '{"client_secret": "[REDACTED]"}'),
        ("client-key-data: LS0tLS1CRUdJTi==", "client-key-data: [REDACTED]"),
        ("password=hunter2hunter2;", "password=[REDACTED];"),
        ("Set-Cookie: 0123456789abcdef", "Set-Cookie: [REDACTED]"),
        ("http://user:pass@proxy:3128/", "http://[REDACTED]@proxy:3128/"),
        ("k8s-aws-v1.aHR0cHM6Ly9zdHM", "k8s-aws-v1.[REDACTED]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nAAAA\n-----END RSA PRIVATE KEY-----\nrest",
            "-----BEGIN RSA PRIVATE KEY-----[REDACTED]\nrest",
        ),
    ],
)
def test_credentials_are_redacted_in_text(text: str, expected: str) -> None:
    assert redact_text(text) == expected
    assert redact_text(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Evicted shop/web-1: topology.kubernetes.io/zone skew 3 > 1",
        "a bearer of news",
        "the token is expired",
        "cannot get secret: none",
        "topologyKey=topology.kubernetes.io/zone",
        "https://10.0.0.1:6443/api/v1/pods?continue=1",
        "user@example.com",
    ],
)
def test_other_text_is_not_changed(text: str) -> None:
    assert redact_text(text) == text


def test_a_field_named_as_a_credential_is_redacted_completely() -> None:
    fields = {
        "token": "a b",
        "accessToken": 5,
        "Authorization": ["x"],
        "client_secrets": {"a": 1},
        "topology_key": "zone",
    }
    assert redact_fields(fields) == {
        "token": "[REDACTED]",
        "accessToken": "[REDACTED]",
        "Authorization": "[REDACTED]",
        "client_secrets": "[REDACTED]",
        "topology_key": "zone",
    }


def test_an_absent_credential_is_shown_as_absent() -> None:
    assert redact_fields({"token": None}) == {"token": None}


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (True, True),
        (None, None),
        (0.5, 0.5),
        (float("inf"), "inf"),
        (Colour.RED, "red"),
        (ObjectKey("shop", "web"), "shop/web"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02 00:00:00+00:00"),
        ((1, (2, "three")), [1, [2, "three"]]),
        (Map({"a": Map({"password": "x"})}), {"a": {"password": "[REDACTED]"}}),
        ({1: {"deep": [f"Bearer {JWT}"]}}, {"1": {"deep": ["Bearer [REDACTED]"]}}),
        (b"Authorization: x", "b'Authorization: [REDACTED]'"),
    ],
)
def test_every_value_becomes_plain_data(value: object, expected: object) -> None:
    result = redact(value)
    assert result == expected
    assert type(result) in {int, bool, float, str, list, dict, type(None)}
