"""Quantities are parsed as the API parses them: its recorded answers, and surprising cases."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from respread.cluster.quantity import MAX_VALUE, NANO_PER_UNIT, QuantityError, parse_nano, round_away_from_zero, shown

DATA = Path(__file__).parents[2] / "conformance" / "data" / "quantities.jsonl.gz"
with gzip.open(DATA, "rt", encoding="utf-8") as lines:
    ROWS: list[dict[str, Any]] = [json.loads(line) for line in lines]


def test_the_conformance_data_exists() -> None:
    assert len(ROWS) == 400


@pytest.mark.parametrize("row", [row for row in ROWS if "error" not in row], ids=lambda row: repr(row["quantity"]))
def test_a_quantity_is_parsed_as_the_api_parses_it(row: dict[str, Any]) -> None:
    nano = parse_nano(row["quantity"])

    assert (nano == 0) is row["isZero"]
    if "value" in row:
        assert round_away_from_zero(nano, NANO_PER_UNIT) == row["value"]
    else:
        assert round_away_from_zero(nano, NANO_PER_UNIT) == MAX_VALUE
    if "milliValue" in row:
        assert round_away_from_zero(nano, 1_000_000) == row["milliValue"]
    else:
        assert round_away_from_zero(nano, 1_000_000) > MAX_VALUE


@pytest.mark.parametrize("row", [row for row in ROWS if "error" in row], ids=lambda row: repr(row["quantity"]))
def test_a_quantity_that_the_api_rejects_is_rejected_with_the_same_message(row: dict[str, Any]) -> None:
    with pytest.raises(QuantityError) as raised:
        parse_nano(row["quantity"])
    assert str(raised.value) == row["error"]


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("1", 10**9),
        ("100m", 10**8),
        ("1Ki", 1024 * 10**9),
        ("128Mi", 2**27 * 10**9),
        ("4Gi", 2**32 * 10**9),
        ("1Ti", 2**40 * 10**9),
        ("1Pi", 2**50 * 10**9),
        ("1Ei", 2**60 * 10**9),
        ("1n", 1),
        ("1u", 1000),
        ("1k", 10**12),
        ("1M", 10**15),
        ("1G", 10**18),
        ("1T", 10**21),
        ("1P", 10**24),
        ("1E", 10**27),
        ("1e3", 10**12),
        ("1E3", 10**12),
        ("1e-3", 10**6),
        (".5", 5 * 10**8),
        ("1.", 10**9),
        ("+1", 10**9),
        ("-1", -(10**9)),
    ],
)
def test_every_suffix_sign_and_form_is_parsed(text: str, nano: int) -> None:
    assert parse_nano(text) == nano


@pytest.mark.parametrize("text", ["m", "Ki", "e3", "+", "-", ".", "+.", "0Ti", "-0n", "0e-30"])
def test_a_quantity_without_digits_is_zero(text: str) -> None:
    assert parse_nano(text) == 0


@pytest.mark.parametrize("text", ["Pi", "Ei", "e-10", "+Ei", ".e-10"])
def test_a_quantity_without_digits_and_with_a_large_suffix_is_an_error(text: str) -> None:
    with pytest.raises(QuantityError, match=r"^unable to parse numeric part of quantity$"):
        parse_nano(text)


def test_amounts_below_one_nano_are_rounded_up_to_one_nano() -> None:
    assert parse_nano("1e-30") == 1
    assert parse_nano("-1e-30") == -1
    assert parse_nano("0.0000000001") == 1


def test_binary_amounts_are_capped_at_64_bits() -> None:
    assert parse_nano("8Ei") == MAX_VALUE * 10**9
    assert parse_nano("-9Ei") == -MAX_VALUE * 10**9


@pytest.mark.parametrize("text", ["1e1000000000", "-1E2147483647", "9" * 900, "1e100", "10e99"])
def test_huge_amounts_are_parsed_quickly_and_stay_huge(text: str) -> None:
    """Any user who may create a pod may write such a quantity, and the API server stores it."""
    assert abs(parse_nano(text)) == MAX_VALUE * 10**9


def test_tiny_exponents_are_parsed_quickly() -> None:
    assert parse_nano("1e-2000000000") == 1


def test_an_exponent_has_32_bits_as_in_the_api() -> None:
    assert parse_nano("3e4294967297") == 30 * 10**9


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0" * 1_000_000 + "8", 8 * 10**9),
        ("0" * 1_000_000 + "8Gi", 8 * 2**30 * 10**9),
        ("-" + "0" * 5000 + "1", -(10**9)),
        ("0." + "0" * 1_000_000 + "1", 1),
        ("1" + "0" * 1_000_000 + "e-1000000", 10**9),
        ("0." + "0" * 1_000_000 + "1e1000001", 10**9),
        ("1e" + "0" * 1_000_000 + "3", 10**12),
        ("9" * 1_000_000, MAX_VALUE * 10**9),
        ("9" * 1_000_000 + "Ki", MAX_VALUE * 10**9),
    ],
    ids=range(9),
)
def test_a_string_of_a_million_characters_is_parsed(text: str, nano: int) -> None:
    assert parse_nano(text) == nano


def test_a_string_of_a_million_characters_is_not_cached() -> None:
    tracemalloc.start()
    try:
        for number in range(20):
            parse_nano("0" * 1_000_000 + str(number))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


@pytest.mark.parametrize("text", ["1\n", "\uff11", "1 ", " 1", "1Gi\n"])
def test_only_ascii_without_surrounding_blanks_is_accepted(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_nano(text)


@pytest.mark.parametrize(
    ("text", "said"), [("2", "2"), ("1500m", "1.5"), ("100n", "0"), ("1Gi", "1073741824"), ("1E", f"{10**18}")]
)
def test_an_amount_is_shown_in_whole_units_and_thousandths(text: str, said: str) -> None:
    assert shown(parse_nano(text)) == said
