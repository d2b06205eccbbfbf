"""A hook of mkdocs: links out of docs/ lead to the repository, if they name what exists there."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Final

_DOCS: Final = Path(__file__).parent
_LINK: Final = re.compile(r"\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")
_log = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return a page whose links out of docs/ are those of the repository. A wrong one ends a strict build."""
    folder = (_DOCS / page.file.src_uri).parent

    def led(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if target.is_relative_to(_DOCS):
            return match[0]
        if not target.exists():
            _log.warning("%s links to %s, which does not exist", page.file.src_uri, match[1])
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.repo_url}/{kind}/main/{target.relative_to(_DOCS.parent).as_posix()}{match[2] or ''})"

    return _LINK.sub(led, markdown)
