"""--watch: invalid combinations of options, and the output on a small terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count

import click
import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from respread.program.command_line import CommandError
from respread_cli.main import respread
from respread_cli.render import watching
from respread_cli.render.formats import OutputOptions
from respread_cli.render.output import Shown
from respread_cli.render.watching import WatchScreen


class Report(msgspec.Struct, frozen=True):
    """Some numbers and the time of their reading."""

    numbers: tuple[int, ...]
    time: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    notes: tuple[str, ...] = ()

    def names(self) -> Iterable[str]:
        return map(str, self.numbers)


class Lines:
    def __init__(self, _: Console) -> None: ...

    def render(self, report: Report) -> list[Text]:
        return [Text(f"line {number}") for number in report.numbers]


def shown(report: Report) -> Shown:
    return Shown(report, Lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("skew", "--snapshot", "x.json"), "leave out --exit-code and --snapshot"),
        (("plan", "--exit-code"), "leave out --exit-code and --snapshot"),
        (("explain", "web", "-o", "html"), "-o html is one file"),
        (("plan", "-f", "-"), "name a file instead of -f -"),
    ],
)
def test_incompatible_options_of_watch_are_rejected(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(respread, [*arguments, "--watch"], env={"KUBECONFIG": "/nowhere"})
    assert done.exit_code == 2
    assert said in done.stderr


def test_lines_that_do_not_fit_the_terminal_are_counted_and_errors_are_complete() -> None:
    screen = WatchScreen(OutputOptions(no_color=True))
    console = Console(width=60, height=6, no_color=True)

    def drawn() -> list[str]:
        options = console.options.update(height=6)
        return ["".join(part.text for part in line).rstrip() for line in console.render_lines(screen, options)]

    screen.show(shown(Report(tuple(range(10)))))
    assert drawn()[:4] == ["line 0", "line 1", "line 2", "line 3"]
    assert re.search(r"^6 more lines do not fit\. Read at .* Ctrl-C ends\.$", " ".join(drawn()[4:]))
    screen.show(shown(Report((1, 2))))
    assert drawn()[:2] == ["line 1", "line 2"]
    assert "fit" not in drawn()[-1]
    screen.fail("the API server at https://127.0.0.1:6443 (context shop) can't be reached: Connection refused.")
    assert drawn()[:2] == ["line 1", "line 2"]
    assert " ".join(drawn()).endswith("can't be reached: Connection refused.")
    assert len(drawn()) == 6


def test_output_that_differs_only_in_time_and_repeated_errors_are_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "WATCH_SECONDS", 0.0)
    turns = count()

    def look() -> Report:
        turn = next(turns)
        if turn in {2, 3}:
            raise CommandError("it can't be reached.")
        if turn == 6:
            raise KeyboardInterrupt
        return Report((1,) if turn < 5 else (2,), datetime(2026, 1, 1, 0, turn, tzinfo=UTC))

    with pytest.raises(click.exceptions.Exit) as ended:
        watching.show_results(look, OutputOptions("name", watch=True), shown)
    assert ended.value.exit_code == 130
    printed = capsys.readouterr()
    assert printed.out == "1\n2\n"
    assert printed.err == "Note: it can't be reached.\n"
