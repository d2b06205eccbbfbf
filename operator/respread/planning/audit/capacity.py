"""How many pods constraints let the scheduler place, if only they limit it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Level(NamedTuple):
    """A DoNotSchedule constraint, as far as it limits how many pods each domain may have."""

    max_skew: int
    minimum_is_zero: bool
    """Whether the global minimum can't rise above 0: there are too few domains, or one of them takes no pods."""


def can_hold(pods: int, nodes: Sequence[int], outer: Level, inner: Level) -> bool:
    """Return whether so many pods can be placed, if two constraints hold whose domains are nested.

    There must be an outer minimum `z` and an inner minimum `h`, so that each outer domain with `n` inner domains has at
    least `max(z, n h)` pods and at most `min(z + outer maxSkew, n (h + inner maxSkew))`, and these bounds contain the
    number of pods. If there are none, no order of placing the pods can succeed: as long as pods are only added, minima
    don't fall, so that at the end every domain would be within the bounds.

    Args:
        pods: the number of pods.
        nodes: for each outer domain, the number of inner domains that take pods; an outer domain may have none.
        outer: the constraint of the larger domains, such as zones.
        inner: the constraint of the smaller domains, such as nodes.
    """
    outer_minima = _minima(pods, len(nodes), outer, zero=not all(nodes))
    inner_minima = _minima(pods, sum(nodes), inner)
    for outer_minimum in outer_minima:
        for inner_minimum in inner_minima:
            least = [max(outer_minimum, each * inner_minimum) if each else 0 for each in nodes]
            most = [min(outer_minimum + outer.max_skew, each * (inner_minimum + inner.max_skew)) for each in nodes]
            if sum(least) <= pods <= sum(most) and all(map(int.__le__, least, most)):
                return True
    return False


def _minima(pods: int, domains: int, level: Level, *, zero: bool = False) -> Sequence[int]:
    """Return the minima with which so many domains can have so many pods: not above the mean, nor too far below."""
    if zero or level.minimum_is_zero or not domains:
        return (0,)
    least = -(-pods // domains) - level.max_skew
    return range(pods // domains, max(0, least) - 1, -1)
