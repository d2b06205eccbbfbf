"""`respread` and `kubectl respread`: the commands, each imported only when it is called."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from respread import __version__
from respread.program.command_line import CommandError, run_program

KUBECTL_PLUGIN: Final = "kubectl-respread"
"""The program's name as a kubectl plugin."""

ENTRY_POINTS: Final = "respread.commands"
"""The group of entry points with which respread-sandbox adds its commands."""


class Entry(NamedTuple):
    """A command: its module, and its description in one line.

    The line equals that of the command's own help. It is repeated here because importing all commands takes longer than
    most of them run. A test compares the two.
    """

    name: str
    module: str | None
    """None if respread-sandbox provides it."""
    summary: str


COMMANDS: Final = (
    Entry("skew", "respread_cli.commands.skew", "Show how evenly pods are spread, worst first."),
    Entry("plan", "respread_cli.commands.plan", "Show the evictions that would restore the spread."),
    Entry("explain", "respread_cli.commands.explain", "Show why pods move, and why others don't."),
    Entry(
        "simulate", "respread_cli.commands.simulate", "Show what changes would do to the spread, without making them."
    ),
    Entry("advise", "respread_cli.commands.advise", "Suggest constraints for workloads that nothing keeps spread."),
    Entry("ui", "respread_cli.ui.command", "Show the cluster's spread in a browser."),
    Entry("lint", "respread_cli.commands.lint", "Check manifests and policies in files, without a cluster."),
    Entry("snapshot", "respread_cli.commands.snapshot", "Write all that a plan depends on to a file."),
    Entry("migrate", "respread_cli.commands.migrate", "Write policies from the settings of descheduler."),
    Entry("version", "respread_cli.commands.version", "Show the versions of client, operator and Kubernetes."),
    Entry("completion", "respread_cli.commands.completion", "Print the completion script for a shell."),
    Entry("run", "respread.program.run", "Run the operator."),
    Entry("demo", None, "Watch the spread being restored on a real control plane."),
    Entry("sandbox", None, "A real Kubernetes control plane with simulated nodes, on this machine."),
)
"""In the order of `respread --help`."""


def load(entry: Entry) -> click.Command:
    """Import a command.

    Raises:
        CommandError: its package is not installed.
    """
    command: click.Command
    if entry.module is not None:
        command = getattr(import_module(entry.module), entry.name)
        return command
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and only two commands need it

    for found in entry_points(group=ENTRY_POINTS, name=entry.name):
        command = found.load()
        return command
    raise CommandError(
        f"respread {entry.name} comes with the package respread-sandbox, which is not installed here. Install it with: "
        "pip install 'respread[sandbox]'; in a clone: pip install ./operator/respread ./operator/respread_sandbox ."
    )


class LazyGroup(click.Group):
    """Imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands' names."""
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import a command."""
        for entry in COMMANDS:
            if entry.name == cmd_name:
                gc.disable()  # Imported objects stay. Examining them for garbage takes an eighth of the time.
                try:
                    return load(entry)
                finally:
                    gc.enable()
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command by the first word, or say which one was probably meant."""
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            from respread_cli.report.target import close_to, did_you_mean  # noqa: PLC0415 - for this error only

            close = did_you_mean(close_to(args[0], self.list_commands(ctx)))
            raise click.UsageError(f"there is no command {args[0]!r}.{close}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete the names of commands without importing them."""
        commands = [
            CompletionItem(entry.name, help=entry.summary) for entry in COMMANDS if entry.name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.summary) for entry in COMMANDS])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="respread")
def respread() -> None:
    """Keep pods spread as their topology spread constraints require.

    Start with `respread demo`, or look at your own cluster with `respread skew`, which only reads. You can also set
    every option by an environment variable: --namespace of `respread skew` by RESPREAD_NAMESPACE.
    """


def main() -> None:
    """Run the program."""
    run_program(respread, "kubectl respread" if Path(sys.argv[0]).stem == KUBECTL_PLUGIN else "respread")


def complete_for_kubectl() -> None:
    """Answer kubectl, which calls this program with what is typed after `kubectl respread`."""
    from respread_cli.commands.completion import cobra_lines  # noqa: PLC0415 - only for completion

    sys.stdout.write("\n".join(cobra_lines(respread, sys.argv[1:])) + "\n")


if __name__ == "__main__":
    main()
