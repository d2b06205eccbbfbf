"""Times in the output of commands, as people say them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from respread_cli.render.explain_text import with_relative_times
from tests.worlds import NOW


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (timedelta(seconds=34), "it will be in 34 s"),
        (timedelta(hours=2, minutes=5), "it will be in 2 h 5 min"),
        (timedelta(minutes=-3), "it will be 3 min ago"),
    ],
)
def test_a_time_is_told_from_now(after: timedelta, said: str) -> None:
    assert with_relative_times(f"it will be at {(NOW + after).isoformat(timespec='seconds')}", NOW) == said


def test_a_text_without_a_time_stays_as_it_is() -> None:
    assert with_relative_times("at maxSkew 1, at 12:00", NOW) == "at maxSkew 1, at 12:00"
