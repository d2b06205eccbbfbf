"""Generated pages: the options of every command, the examples of policies, and the values of the chart.

    python -m tests.reference

`make reference` runs it. A test checks that the pages are current.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from respread.program.command_line import CommandWithExamples
from respread_cli.main import COMMANDS, load
from tests.chart_values import VALUES, values_table
from tests.generated_parts import GeneratedParts

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
PARTS: Final = GeneratedParts("make reference")
EXAMPLES: Final = DOCS / "examples"
TRYING_OUT: Final = ("demo", "sandbox")
"""Commands that run no cluster of a user: docs/sandbox.md describes them."""
SHARED: Final = 3
"""An option of as many commands, with the same help, is described once."""
ORDER: Final = (
    "look-first",
    "start-with-some",
    "at-night",
    "one-team",
    "leave-alone",
    "prevent",
    "soft",
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
    generated = {
        DOCS / "command-line-options.md": ("command-line-options", options()),
        DOCS / "examples.md": ("examples", examples()),
        VALUES.with_name("README.md"): ("chart-values", values_table()),
    }
    found = {}
    for path, (name, content) in generated.items():
        found[path] = PARTS.write(path.read_text(encoding="utf-8"), name, content)
    return found


def options() -> str:
    """Return the options that several commands share, and for each command its usage, help text and other options."""
    commands = [
        each
        for entry in COMMANDS
        if entry.name not in TRYING_OUT
        for each in _commands(load(entry), f"respread {entry.name}")
    ]
    counted = Counter(option for command, typed in commands for option in _options(command, typed))
    shared = {option for option, times in counted.items() if times >= SHARED}
    lines = ["", "## Common options", "", *_table(each for each in counted if each in shared)]
    for command, typed in commands:
        lines += _command(command, typed, shared)
    return "\n".join(lines)


def _commands(command: click.Command, typed: str) -> Iterator[tuple[click.Command, str]]:
    if not isinstance(command, click.Group):
        yield command, typed
        return
    for name, each in command.commands.items():
        yield from _commands(each, f"{typed} {name}")


def _options(command: click.Command, typed: str) -> list[tuple[str, str]]:
    """Return the names and the help of each option."""
    context = click.Context(command, info_name=typed)
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    return [record for record in records if record is not None]


def _table(options: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield from ("| option | meaning |", "|---|---|")
    for names, meaning in options:
        yield f"| `{_cell(names)}` | {_cell(meaning)} |"


def _command(command: click.Command, typed: str, shared: Container[tuple[str, str]]) -> Iterator[str]:
    context = click.Context(command, info_name=typed)
    yield from ("", f"## {typed}", "", "```", command.get_usage(context).removeprefix("Usage: "), "```", "")
    for paragraph in (command.help or "").strip().split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    own = [each for each in _options(command, typed) if each not in shared]
    if own:
        yield from (*_table(own), "")
    common = [f"`{each[0].split()[0].rstrip(',')}`" for each in _options(command, typed) if each in shared]
    if common:
        yield from (f"[Common options](#common-options): {', '.join(common)}.", "")
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
