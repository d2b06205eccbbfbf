"""What the codes of answers mean, whatever was requested."""

from __future__ import annotations

import pytest

from respread.kube.requests import Meaning, meaning_of, retry_after_seconds

MEANINGS = {
    Meaning.DONE: (200, 201, 202, 204),
    Meaning.ABSENT: (404,),
    Meaning.CONFLICT: (409,),
    Meaning.FORBIDDEN: (403,),
    Meaning.UNAUTHORIZED: (401,),
    Meaning.THROTTLED: (429,),
    Meaning.REFUSED: (400, 405, 406, 410, 413, 415, 422),
    Meaning.UNCERTAIN: (302, 408, 500, 502, 503, 504, 599),
}


@pytest.mark.parametrize(("meaning", "code"), [(each, code) for each, codes in MEANINGS.items() for code in codes])
def test_a_code_means_the_same_for_every_request(meaning: Meaning, code: int) -> None:
    assert meaning_of(code) is meaning


def test_every_meaning_has_a_code() -> None:
    assert set(MEANINGS) == set(Meaning)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-1", 0.0), ("inf", None), ("Fri, 27 Nov 2026 10:00:00 GMT", None), (None, None)],
)
def test_an_answer_may_say_for_how_many_seconds_to_wait(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header) == seconds
