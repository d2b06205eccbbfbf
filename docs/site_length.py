"""A hook of mkdocs: what users read stays short enough to be read. A longer users' part ends a strict build."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

MOST_WORDS: Final = 20_000
"""In the pages for users, with the runbooks and the reference, without blocks of code."""
WORDS_PER_MINUTE: Final = 220
AUTHORS: Final = "Internals"
"""The section of the navigation for those who change the code, or check its claims."""
_BLOCK: Final = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_TARGET: Final = re.compile(r"\]\([^)\s]*\)")
_WORD: Final = re.compile(r"\w[\w'.:/-]*")
_log = logging.getLogger("mkdocs.hooks.length")


def words(markdown: str) -> int:
    """Return how many words a reader reads: those of text and tables, not blocks of code or targets of links."""
    for pattern in (_BLOCK, _COMMENT, _TARGET):
        markdown = pattern.sub("", markdown)
    return len(_WORD.findall(markdown))


def users_pages(docs: Path, nav: Iterable[Any]) -> list[Path]:
    """Return the pages for users: those outside the section for authors, and every runbook."""
    return [*(docs / name for name in _names(nav)), *sorted((docs / "runbooks").glob("Respread*.md"))]


def _names(entries: Iterable[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
            continue
        for title, target in entry.items():
            if title != AUTHORS and "://" not in target:
                yield from _names([target] if isinstance(target, str) else target)


def on_nav(nav: Any, config: Any, **_: Any) -> Any:
    """Print how long the users' part is, and warn if it is too long."""
    pages = users_pages(Path(config.docs_dir), config.nav)
    length = sum(words(page.read_text(encoding="utf-8")) for page in pages)
    print(f"For users: {length:,} words on {len(pages)} pages, {length // WORDS_PER_MINUTE} minutes to read")  # noqa: T201 - of `make site`
    if length > MOST_WORDS:
        _log.warning("the users' part has %d words, more than %d: cut, or move what is for authors", length, MOST_WORDS)
    return nav
