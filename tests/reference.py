"""Generated pages of docs/: the options of every command, and the examples of policies.

    python -m tests.reference

`make reference` runs it. A test checks that the pages are current.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from respread.program.command_line import CommandWithExamples
from respread_cli.main import COMMANDS, load
from tests.generated_parts import GeneratedParts

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
PARTS: Final = GeneratedParts("make reference")
EXAMPLES: Final = DOCS / "examples"
ORDER: Final = (
    "look-first",
    "start-with-some",
    "at-night",
    "one-team",
    "leave-alone",
    "prevent",
    "zones-only",
    "databases",
    "empty-zone",
    "other-controllers",
)
"""The examples of policies in the order of the page: the most common ones are first."""


def pages() -> dict[Path, str]:
    """Return the current content of each page.

    Raises:
        ValueError: a page has no place for a generated part.
    """
    found = {}
    for name, content in (("command-line-options", options()), ("examples", examples())):
        path = DOCS / f"{name}.md"
        found[path] = PARTS.write(path.read_text(encoding="utf-8"), name, content)
    return found


def options() -> str:
    """Return a section for each command: its usage, its help text and its options."""
    lines: list[str] = []
    for entry in COMMANDS:
        lines += _command(load(entry), f"respread {entry.name}")
    return "\n".join(lines)


def _command(command: click.Command, typed: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _command(each, f"{typed} {name}")
        return
    context = click.Context(command, info_name=typed)
    yield from ("", f"## {typed}", "", "```", command.get_usage(context).removeprefix("Usage: "), "```", "")
    for paragraph in (command.help or "").strip().split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    yield from ("| option | meaning |", "|---|---|")
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield f"| `{_cell(record[0])}` | {_cell(record[1])} |"
    yield ""
    if isinstance(command, CommandWithExamples):
        yield "```sh"
        for example in command.examples:
            yield from (f"# {example.about}", f"respread {example.arguments}")
        yield from ("```", "")


def _cell(text: str) -> str:
    """Return a text as a cell of a table, with escaped bars."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def examples() -> str:
    """Return a section for each example: its title and description from its first comment, and its YAML."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.yaml")}
    if found.keys() != set(ORDER):
        raise ValueError(f"ORDER and {EXAMPLES} differ: {sorted(found.keys() ^ set(ORDER))}")
    return "".join(_example(name, found[name]) for name in ORDER)


def _example(name: str, text: str) -> str:
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    title, _, *about = (line.removeprefix("#").strip() for line in lines[:begin])
    policy = "\n".join(lines[begin:])
    return (
        f"\n## {title}\n\n{' '.join(about)}\n\n```yaml\n{policy}\n```\n\n"
        f"`kubectl apply --server-side -f docs/examples/{name}.yaml`\n"
    )


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
