"""A command whose `--help` ends with examples, as kubectl's does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click


class Example(NamedTuple):
    """A command line that works as shown."""

    about: str
    """What it does, without a full stop."""
    arguments: str
    """What follows the program's name."""


class CommandWithExamples(click.Command):
    """Shows its examples below its options, with the name by which the program was called."""

    def __init__(self, *args: Any, examples: Sequence[Example], **fields: Any) -> None:
        """Create it.

        Args:
            args: as click's.
            examples: one or more.
            fields: as click's.
        """
        super().__init__(*args, **fields)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        program = ctx.find_root().info_name
        with formatter.section("Examples"):
            for number, example in enumerate(self.examples):
                if number:
                    formatter.write_paragraph()
                indent = " " * formatter.current_indent
                formatter.write(f"{indent}# {example.about}\n{indent}{program} {example.arguments}\n")
