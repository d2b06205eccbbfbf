"""A namespace whose policies take long to read does not delay others."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from immutables import Map

from respread.controller.permission import (
    AT_ONCE,
    CONFIRM_SECONDS,
    CONFIRMED_SECONDS,
    EVERYWHERE,
    Confirmations,
    Leading,
    Permission,
    PolicyVersions,
)
from tests.worlds import NOW

pytestmark = pytest.mark.virtual_time

QUICK_SECONDS = 0.05


class Reader:
    """Takes a given number of seconds to read the policies of some namespaces, and little for all others."""

    def __init__(self, slow: dict[str, float]) -> None:
        self._slow = slow
        self._now = self.most = 0

    async def read(self, namespace: str) -> PolicyVersions:
        asked_at = asyncio.get_running_loop().time()
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(self._slow.get(namespace, QUICK_SECONDS))
        finally:
            self._now -= 1
        return PolicyVersions(Map(), asked_at)


async def oldest_answer(reader: Reader, places: list[str], seconds: int, after: int) -> dict[str, float]:
    """Ask for all places once a second, and return how old the answer of each ever was after a while."""
    clock = asyncio.get_running_loop().time
    confirmations, leading = Confirmations(reader.read, clock), Leading(lambda: True, lambda: 1)
    permission = Permission(leading, Map, confirmations, clock=clock, now=lambda: NOW)
    oldest: dict[str, float] = {}
    asking: set[asyncio.Task[None]] = set()
    for second in range(seconds):
        asking |= {asyncio.create_task(permission.confirm(place)) for place in places}
        await asyncio.sleep(1.0)
        for place in (EVERYWHERE, *(places if second >= after else ())):
            known = confirmations.of(place)
            age = clock() - (known.asked_at if known is not None else 0.0)
            oldest[place] = max(age, oldest.get(place, 0.0))
    await asyncio.gather(*asking)
    closed_at = clock()
    await permission.aclose()
    assert (clock() - closed_at < QUICK_SECONDS, len(asyncio.all_tasks())) == (True, 1), "no reading goes on"
    return oldest


@pytest.mark.parametrize(("number", "seconds"), [(40, 4.0), (AT_ONCE, 50.0)])
async def test_slow_namespaces_delay_neither_others_nor_the_cluster_policies(number: int, seconds: float) -> None:
    """A read that takes too long is cancelled, so that it gives its place to others."""
    reader = Reader(slow := {"shop": 2 * CONFIRM_SECONDS, **{f"slow-{each}": seconds for each in range(number)}})
    asyncio.get_running_loop().call_later(CONFIRM_SECONDS, slow.pop, "shop")  # which is quick from then on
    oldest = await oldest_answer(reader, list(slow), seconds=60, after=30)
    assert oldest["shop"] < CONFIRMED_SECONDS
    assert oldest[EVERYWHERE] < CONFIRMED_SECONDS
    assert reader.most <= 13


async def test_a_place_is_read_once_a_second() -> None:
    confirmations, asked = Confirmations(Reader({}).read, asyncio.get_running_loop().time), set[float]()
    for _ in range(10):
        await confirmations.refresh(["shop"])
        asked |= {answer.asked_at for answer in (confirmations.of("shop"),) if answer is not None}
        await asyncio.sleep(0.3)
    assert all(CONFIRM_SECONDS <= after - at < CONFIRMED_SECONDS for at, after in pairwise(sorted(asked)))
    assert len(asked) > 1
