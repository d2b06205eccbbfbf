"""Every documented command line of `respread` and every documented target of `make` is valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from respread_cli.main import respread

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
TARGETS = {word for line in TARGETS for word in line.split()}
PLACEHOLDER = re.compile(r"^\[|\]$|\.\.\.|…|\b[A-Z]{4,}\b|\|")


def shown_lines(page: Path) -> Iterator[str]:
    """Yield the lines of code blocks, and code in sentences."""
    text = page.read_text(encoding="utf-8")
    for _, block in re.findall(r"^( *)```\w*\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()
    outside = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(each.split()) for each in re.findall(r"`([^`]+)`", outside))


def lines_of(program: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for line in shown_lines(page):
            for part in re.split(r"\s[|]\s|&&|;", line):
                words = part.strip().removeprefix("$ ").removeprefix("kubectl ")
                if words.startswith(f"{program} "):
                    found.append((str(page.relative_to(ROOT)), words))
    return sorted(set(found))


def can_be_typed(words: list[str]) -> None:
    """Parse a command line like the program, without running the command.

    Raises:
        click.UsageError: it can't be parsed.
    """
    command: click.Command = respread
    parent: click.Context | None = None
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return
        parent = click.Context(command, parent=parent, info_name=command.name)
        found = command.get_command(parent, words[0])
        if found is None:
            raise click.UsageError(f"no such command: {words[0]}")
        command, words = found, words[1:]
    context = click.Context(command, parent=parent, info_name=command.name)
    values, left_over, _ = command.make_parser(context).parse_args(list(words))
    if left_over:
        raise click.UsageError(f"unexpected: {' '.join(left_over)}")
    for parameter in command.params:
        given = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice) and isinstance(given, str):
            parameter.type.convert(given, parameter, context)


@pytest.mark.parametrize(("page", "line"), lines_of("respread"))
def test_documented_command_lines_are_valid(page: str, line: str) -> None:
    line = re.split(r"\s[<>]\s|\s>\S|\s+#|\s&$", line)[0]
    line = re.sub(r"\$\([^)]*\)", "", line)  # output of another command
    words = [word for word in shlex.split(line)[1:] if not word.startswith(("[", "("))]
    if any(PLACEHOLDER.search(word) for word in words if not word.startswith("jsonpath")):
        words = [word for word in words if not PLACEHOLDER.search(word)][:1]  # in a synopsis, only the command
    try:
        can_be_typed(words)
    except click.UsageError as error:
        pytest.fail(f"{page}: {line}: {error.message}")


@pytest.mark.parametrize(("page", "line"), lines_of("make"))
def test_documented_make_targets_exist(page: str, line: str) -> None:
    words = [word for word in shlex.split(re.split(r"\s+#", line)[0])[1:] if "=" not in word]
    assert words, page
    assert words[0] in TARGETS, f"{page}: {line}"


def test_command_lines_are_found_in_the_documentation() -> None:
    assert len(lines_of("respread")) > 30
    assert len(lines_of("make")) > 20


@pytest.mark.parametrize("line", ["frobnicate", "skew --frobnicate", "snapshot a b", "completion tcsh"])
def test_an_invalid_command_line_is_detected(line: str) -> None:
    with pytest.raises(click.UsageError):
        can_be_typed(line.split())
