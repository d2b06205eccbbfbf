"""The commands that a page of the documentation shows, for tests that run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path


def commands(page: Path, section: str) -> Iterator[list[str]]:
    """Yield the words of each command in the shell blocks of a section, without comments.

    Args:
        page: the page, in Markdown.
        section: the text of a heading of the second level.
    """
    (text,) = re.findall(
        rf"^## {section}\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    for _, block in re.findall(r"^( *)```sh\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.split(line, comments=True)
