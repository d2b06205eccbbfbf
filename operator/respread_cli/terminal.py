"""What the terminal and its user do to a command: they end it, or have a screen beside it."""

from __future__ import annotations

import os
import signal
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit, with the exit code that shells give a signal, when one comes within the context.

    It may come up inside the code of a lock or a thread, which may then fail in another way.
    """
    ended_by: list[int] = []

    def end(number: int, _frame: types.FrameType | None) -> None:
        ended_by.append(number)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    except Exception:
        if ended_by:
            raise SystemExit(128 + ended_by[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_screen() -> bool:
    """Return whether a browser has a window to open. Over SSH, it would be one in the terminal."""
    return sys.platform in {"darwin", "win32"} or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
