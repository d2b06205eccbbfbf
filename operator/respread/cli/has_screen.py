"""Whether there is a screen on which a browser can show something."""

from __future__ import annotations

import os
import sys


def has_screen() -> bool:
    """Return whether a browser has a window to open. Over SSH, it would be one in the terminal."""
    return sys.platform in {"darwin", "win32"} or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
