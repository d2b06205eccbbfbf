"""The commands that a page of the documentation shows, for those who run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path


def commands(page: Path, section: str) -> Iterator[list[str]]:
    """Yield the words of each command in the shell blocks of a section, without comments. Arguments as of `lines`."""
    for line in lines(page, section):
        yield shlex.split(line, comments=True)


def lines(page: Path, section: str) -> Iterator[str]:
    """Yield each line of the shell blocks of a section, as it is typed; one that goes on in the next is joined with it.

    Args:
        page: the page, in Markdown.
        section: the text of a heading of the second or third level.
    """
    ((_, text),) = re.findall(
        rf"^(###?) {section}\n(.*?)(?=^## |^\1 |\Z)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    for indent, block in re.findall(r"^( *)```sh\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.removeprefix(indent)
