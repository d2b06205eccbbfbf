"""The number of instances for a property, different ones for each part of a long test."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.strategies import SearchStrategy

FACTOR_VARIABLE = "RESPREAD_INSTANCES_FACTOR"
"""The environment variable for the factor: 25 in `make test-all`, 250 in `make properties` and `make tight`."""

_T = TypeVar("_T")


def factor() -> int:
    """Return the factor for the number of instances compared with `make test`."""
    return int(os.environ.get(FACTOR_VARIABLE, "1"))


def try_on(instances: SearchStrategy[_T], ordinarily: int, part: int, holds: Callable[[_T], None]) -> None:
    """Test a property on random instances, different for each part, but the same in every run.

    Args:
        instances: the strategy that draws them.
        ordinarily: the number of instances with factor 1. Only instances that meet its assumptions count.
        part: the number of the part, if a test is divided into parts that can run side by side.
        holds: raises an AssertionError for an instance without the property.
    """
    count = ordinarily * factor()

    @seed(part)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # without shrinking, which would need a search for each try
        suppress_health_check=list(HealthCheck),
    )
    @given(instances)
    def run(instance: _T) -> None:
        holds(instance)

    # Hypothesis also draws numbers that occur in the modules that are imported: others after each change, and with each
    # selection of tests.
    with patch.object(providers, "_get_local_constants", Constants), patch.object(providers, "CONSTANTS_CACHE", {}):
        run()
