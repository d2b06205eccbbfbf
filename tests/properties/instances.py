"""How many instances a property is tried on, and that each part of a long test draws its own."""

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
    """Return how many times as many instances are tried as by `make test`."""
    return int(os.environ.get(FACTOR_VARIABLE, "1"))


def try_on(instances: SearchStrategy[_T], ordinarily: int, part: int, holds: Callable[[_T], None]) -> None:
    """Try a property on instances that are drawn anew for each part, but the same ones every time.

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
