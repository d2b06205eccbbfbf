"""Quantities compared with an oracle in exact fractions, written from the API's documentation alone."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import takewhile

from hypothesis import assume, given
from hypothesis import strategies as st

from respread.cluster.quantity import MAX_VALUE, NANO_PER_UNIT, QuantityError, parse_nano, round_away_from_zero

MULTIPLIERS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
DIGITS = st.text("0123456789", max_size=22)


@st.composite
def quantities(draw: st.DrawFn) -> tuple[str, Fraction]:
    """Return a text of a quantity, and its exact number before any rounding."""
    whole, fraction = draw(DIGITS), draw(st.none() | DIGITS)
    assume(whole or fraction)
    number = Fraction(int(f"{whole}{fraction or ''}"), 10 ** len(fraction or ""))
    sign = draw(st.sampled_from(["", "+", "-"]))
    if draw(st.booleans()):
        suffix = draw(st.sampled_from(sorted(MULTIPLIERS)))
        number *= MULTIPLIERS[suffix]
    else:
        exponent = draw(st.integers(-15, 25))
        suffix = f"{draw(st.sampled_from('eE'))}{exponent:{draw(st.sampled_from(['', '+']))}d}"
        number *= Fraction(10) ** exponent
    text = f"{sign}{whole}{'' if fraction is None else '.' + fraction}{suffix}"
    return text, -number if sign == "-" else number


def away_from_zero(number: Fraction) -> int:
    return math.ceil(number) if number >= 0 else math.floor(number)


def as_held(number: Fraction) -> Fraction:
    """Return the number that a quantity can hold: rounded to a billionth, and at most 64 bits of whole units."""
    held = Fraction(away_from_zero(number * 10**9), 10**9)
    return max(Fraction(-MAX_VALUE), min(held, Fraction(MAX_VALUE)))


@given(quantities())
def test_a_quantity_equals_the_number_in_its_text(quantity: tuple[str, Fraction]) -> None:
    text, number = quantity
    nano, held = parse_nano(text), as_held(number)

    assert Fraction(nano, 10**9) == held
    assert round_away_from_zero(nano, NANO_PER_UNIT) == away_from_zero(held)
    assert round_away_from_zero(nano, 1_000_000) == away_from_zero(held * 1000)
    assert (nano == 0) == (number == 0)


@given(st.text("0123456789.+-eEinumkKMGTP ", max_size=8) | st.text(max_size=4))
def test_any_string_is_a_quantity_or_is_rejected(text: str) -> None:
    try:
        nano = parse_nano(text)
    except QuantityError:
        return
    assert abs(nano) <= MAX_VALUE * NANO_PER_UNIT


@given(quantities(), st.integers(0, 2000), st.text("0123456789", max_size=100), st.integers(0, 2000))
def test_a_quantity_with_many_digits_has_the_same_value(
    quantity: tuple[str, Fraction], zeros: int, digits: str, exponent: int
) -> None:
    """Leading zeros, many decimal places, and digits that an exponent shifts."""
    text, _ = quantity
    sign = text[0] if text[0] in "+-" else ""
    written = text.removeprefix(sign)
    whole = "".join(takewhile(str.isdigit, written))
    assert parse_nano(f"{sign}{'0' * zeros}{written}") == parse_nano(text)

    far = Fraction(int(digits or "0"), 10 ** (zeros + len(digits)))
    for suffix, multiplier in {**MULTIPLIERS, f"e{exponent}": Fraction(10**exponent)}.items():
        long = parse_nano(f"{sign}{whole}.{'0' * zeros}{digits}{suffix}") if whole or digits else None
        held = as_held((Fraction(int(whole or "0")) + far) * multiplier * (-1 if sign == "-" else 1))
        assert long is None or Fraction(long, 10**9) == held
    shifted = parse_nano(f"{sign}{whole or 0}{'0' * exponent}e-{exponent}")
    assert Fraction(abs(shifted), 10**9) == as_held(Fraction(int(whole or "0")))
