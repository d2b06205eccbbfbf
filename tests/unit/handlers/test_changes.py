"""Changes wake the control loop once for all of them."""

from __future__ import annotations

import asyncio

import pytest

from respread.handlers.informer import ChangeSignal


async def test_every_change_is_reported_once() -> None:
    changes = ChangeSignal()
    for resource in ("pods", "pods", "nodes"):
        changes.notify(resource)
    assert await changes.wait() == {"pods", "nodes"}
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(changes.wait(), 0.01)


async def test_a_change_wakes_the_waiting_task() -> None:
    changes = ChangeSignal()
    waiting = asyncio.create_task(changes.wait())
    await asyncio.sleep(0)
    changes.notify("namespaces")
    assert await asyncio.wait_for(waiting, 30) == {"namespaces"}


async def test_changes_are_kept_while_no_task_waits() -> None:
    changes = ChangeSignal()
    changes.notify("pods")
    assert await changes.wait() == {"pods"}
    changes.notify("nodes")
    await asyncio.sleep(0)
    assert await changes.wait() == {"nodes"}


def test_the_oldest_change_is_pending_until_it_is_planned_for() -> None:
    seconds = [100.0]
    changes = ChangeSignal(lambda: seconds[0])
    assert changes.lag_seconds() == 0
    changes.notify("pods")
    seconds[0] += 2
    changes.notify("nodes")
    assert changes.lag_seconds() == 2
    changes.take()
    seconds[0] += 1
    changes.notify("pods")  # while the first changes are processed
    seconds[0] += 1
    assert changes.lag_seconds() == 4
    changes.decided()
    assert changes.lag_seconds() == 1
    changes.take()
    changes.decided()
    assert changes.lag_seconds() == 0
