"""The README's picture: the final output of `respread demo` on a terminal, as SVG.

    python -m tests.demo_picture docs/demo.svg

`make demo-picture` runs it.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.terminal_theme import SVG_EXPORT_THEME

from respread_cli.render.tables import FAINT, WITHIN
from respread_sandbox.demo.command import play
from respread_sandbox.demo.ending import Pair
from respread_sandbox.demo.screen import DemoStep, LivePicture, Screen
from respread_sandbox.demo.world import World

COLUMNS: Final = 126
"""As wide as the longest line."""
DEPLOYMENTS: Final = 40
SEED: Final = 1
"""The defaults of the demo."""
FORMAT: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{about}">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; white-space: pre }}
.{unique_id}-title {{ font: 18px sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The template of rich without fonts from another host."""
CLIPPED_LINE: Final = re.compile(
    r' clip-path="url\(#demo-line-\d+\)"|<clipPath id="demo-line-.*?</clipPath>\n*', re.DOTALL
)
"""Clip paths for lines that are too long. There is none, and the clip paths would be a third of the file."""
ABOUT: Final = (
    "The demo: scale-downs leave zone constraints violated without prevention and none with it; Respread then restores "
    "them by the fewest evictions"
)


class LastPictures(Screen):
    """A screen that shows only the final output."""

    @contextmanager
    def step(self, doing: str) -> Iterator[DemoStep]:
        """Show the result of a step."""
        step, begun = DemoStep(), time.monotonic()
        yield step
        self.say(f"[{WITHIN}]✓[/] {step.result or doing} [{FAINT}]({time.monotonic() - begun:.1f} s)[/]")

    def live(self) -> LivePicture:
        """Show only the last picture."""
        return _Last(self)


class _Last(LivePicture):
    def __init__(self, screen: LastPictures) -> None:
        super().__init__(screen)
        self._on = screen
        self._picture: RenderableType = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._on.console.print(self._picture)

    def show(self, pair: Pair, line: str) -> None:
        """Keep a picture instead of the one before."""
        self._picture = self._on.picture(pair, line)


def drawn(console: Console) -> str:
    """Return what was printed on a recording console as SVG."""
    svg = console.export_svg(
        title="respread demo", theme=SVG_EXPORT_THEME, code_format=FORMAT.replace("{about}", ABOUT), unique_id="demo"
    )
    svg = re.sub(r"^ +|\n(?=\n)", "", svg, flags=re.MULTILINE)
    return CLIPPED_LINE.sub("", svg)


def main() -> None:
    """Run the demo, and write the picture to the file that is named."""
    console = Console(
        file=io.StringIO(), record=True, width=COLUMNS, highlight=False, emoji=False, markup=False, force_terminal=False
    )
    ending = play(LastPictures(console), World.make(DEPLOYMENTS, SEED), patience_seconds=300)
    if ending.missing:
        sys.exit(f"Not as it should be: {'; '.join(ending.missing)}")
    Path(sys.argv[1]).write_text(drawn(console), encoding="utf-8")


if __name__ == "__main__":
    main()
