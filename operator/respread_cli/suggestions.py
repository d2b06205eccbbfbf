"""What was probably meant by a word that is not known: only close words, as a wrong suggestion costs more than none."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

_MOST: Final = 3
_CLOSE: Final = 0.6
"""The similarity, from 0 to 1, of words of three letters of which one is wrong, is above this."""
_LETTERS_PER_MISSING: Final = 3
"""One letter in so many may be missing or too many, and one in any case."""


def close_to(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words that a word is probably a misspelling of, the closest first."""
    most = max(1, len(word) // _LETTERS_PER_MISSING)
    alike = [each for each in known if abs(len(each) - len(word)) <= most]
    return get_close_matches(word, alike, n=_MOST, cutoff=_CLOSE)


def did_you_mean(words: Collection[str]) -> str:
    """Return a question to append to an error, with a blank before it; nothing without words."""
    return f" Did you mean {' or '.join(words)}?" if words else ""
