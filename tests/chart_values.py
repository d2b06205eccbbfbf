"""The values of the Helm chart as a table, from values.yaml and its comments `# --`, which helm-docs reads too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

VALUES: Final = Path(__file__).parents[1] / "charts" / "respread" / "values.yaml"
_MARK: Final = "# -- "


class Value(NamedTuple):
    """A value that users may set."""

    name: str
    """With the names of its parents, as `--set` takes it."""
    default: Any
    meaning: str


def values_table() -> str:
    """Return a table of all values in Markdown.

    Raises:
        ValueError: a value has no comment.
    """
    rows = [f"| `{each.name}` | `{_shown(each.default)}` | {each.meaning} |" for each in values()]
    return "\n".join(("| value | default | meaning |", "|---|---|---|", *rows, ""))


def values() -> list[Value]:
    """Return all values in the order of the file.

    Raises:
        ValueError: a value has no comment.
    """
    text = VALUES.read_text(encoding="utf-8")
    meanings = dict(_meanings(text))
    found = list(_values(yaml.safe_load(text), "", meanings))
    if bare := [each.name for each in found if not each.meaning]:
        raise ValueError(f"{VALUES} has no comment for {', '.join(bare)}")
    return found


def _values(tree: dict[str, Any], above: str, meanings: dict[str, str]) -> Iterator[Value]:
    for key, default in tree.items():
        name = above + key
        if isinstance(default, dict) and default and name not in meanings:
            yield from _values(default, f"{name}.", meanings)
        else:
            yield Value(name, default, meanings.get(name, ""))


def _meanings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the comment of each key that has one, by its name."""
    above: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        said = line.strip()
        if said.startswith(_MARK):
            comment = [said.removeprefix(_MARK)]
        elif said.startswith("#") and comment:
            comment.append(said.removeprefix("#").strip())
        elif key := re.match(r"( *)([A-Za-z]\w*):", line):
            above = [each for each in above if each[0] < len(key[1])] + [(len(key[1]), key[2])]
            if comment:
                yield ".".join(name for _, name in above), " ".join(comment)
            comment = []
        else:
            comment = []


def _shown(default: Any) -> str:
    return json.dumps(default, ensure_ascii=False).replace("|", "\\|")
