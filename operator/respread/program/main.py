"""`respread run` in the image, which contains the operator and none of the other commands."""

from __future__ import annotations

import gc

import click

from respread import __version__
from respread.program.command_line import CommandError, run_program


class _Operator(click.Group):
    """Has one command, and says where the others are."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the only name."""
        return ["run"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import the command."""
        if cmd_name != "run":
            raise CommandError(
                f"only the operator is installed here, which has no command {cmd_name!r}. The commands that look at a "
                "cluster come with the package respread, for your own machine: pip install respread"
            )
        gc.disable()  # Imported objects stay. Examining them for garbage takes an eighth of the time.
        try:
            from respread.program.run import run  # noqa: PLC0415 - not for --help
        finally:
            gc.enable()
        return run


@click.command(cls=_Operator, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="respread")
def operator() -> None:
    """Keep pods spread as their topology spread constraints require."""


def main() -> None:
    """Run the program."""
    run_program(operator, "respread")


if __name__ == "__main__":
    main()
