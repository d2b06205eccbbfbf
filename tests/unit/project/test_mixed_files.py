"""Each worker of pytest-xdist takes the files of its kind first."""

from __future__ import annotations

import pytest

from tests.mixed_files import next_file

WAITING = ["tests/faults/test_leaders.py", "tests/integration/cli/test_demo.py"]
COMPUTING = ["tests/properties/planning/test_tally.py", "tests/unit/kube/test_lease_place.py"]


@pytest.mark.parametrize(
    ("left", "computing", "expected"),
    [
        ([*WAITING, *COMPUTING], False, WAITING[0]),
        ([*WAITING, *COMPUTING], True, COMPUTING[0]),
        (COMPUTING, False, COMPUTING[0]),
        (WAITING, True, WAITING[0]),
    ],
)
def test_a_worker_takes_the_first_file_of_its_kind_or_else_the_first(
    left: list[str], computing: bool, expected: str
) -> None:
    assert next_file(left, computing=computing) == expected
