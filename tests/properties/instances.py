"""The number of instances for a property, different ones for each part of a long test."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

FACTOR_VARIABLE = "RESPREAD_INSTANCES_FACTOR"
"""`make test-all` sets it to 25, `make properties` and `make tight` to 250."""

_T = TypeVar("_T")


def factor() -> int:
    """Return the factor for the number of instances compared with `make test`."""
    return int(os.environ.get(FACTOR_VARIABLE, "1"))


def try_on(instances: SearchStrategy[_T], ordinarily: int, part: int, holds: Callable[[_T], None]) -> None:
    """Test a property on random instances, different for each part, but the same in every run.

    Args:
        instances: where they are drawn from.
        ordinarily: on how many. Those on which the property rejects its assumptions don't count.
        part: of a test that is cut into parts so that they can run side by side.
        holds: raises an AssertionError where it does not.
    """
    count = ordinarily * factor()

    @seed(part)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # to shrink a world that takes a search for every try takes too long
        suppress_health_check=list(HealthCheck),
    )
    @given(instances)
    def run(instance: _T) -> None:
        holds(instance)

    run()
