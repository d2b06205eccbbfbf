"""What command lines are declared with: errors, examples, options, and how a program ends."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from respread.scheduling.configuration import SchedulerConfiguration

ENVIRONMENT: Final[dict[str, Any]] = {"auto_envvar_prefix": "RESPREAD", "max_content_width": 100}
"""The `context_settings` of every command that reads a cluster: the same variable for an option of all commands."""
INTERRUPTED: Final = 130
"""128 + SIGINT, as in shells."""
BROKEN_PIPE: Final = 141
"""128 + SIGPIPE."""
FAILED: Final = 2

R = TypeVar("R")
Items = list[CompletionItem[str]]


class CommandError(click.ClickException):
    """A command can't do what was requested. The message says what is wrong, where, and what to do.

    Exit code 1 says what a command found, such as a violated constraint. So every error has exit code 2, like wrong
    usage.
    """

    exit_code = FAILED


class Example(NamedTuple):
    """A command line that works as shown."""

    about: str
    """What it does, without a full stop."""
    arguments: str
    """What follows the program's name."""


class CommandWithExamples(click.Command):
    """Shows its examples below its options, with the name by which the program was called, as kubectl's help does."""

    def __init__(self, *args: Any, examples: Sequence[Example], **fields: Any) -> None:
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


def connection_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that select the cluster, as `kubeconfig` and `context`."""
    kubeconfig = click.option(
        "--kubeconfig",
        metavar="FILE",
        shell_complete=files,
        help="The kubeconfig to use, or several as in KUBECONFIG. Default: $KUBECONFIG, else the pod's ServiceAccount "
        "where there is one, else ~/.kube/config.",
    )
    context = click.option(
        "--context",
        metavar="NAME",
        shell_complete=_contexts,
        help="The kubeconfig's context to use.  [default: the current one]",
    )
    return kubeconfig(context(command))


def namespaced_policies_option(*, help: str) -> Callable[[Callable[..., R]], Callable[..., R]]:  # noqa: A002  # click's own name
    """Return a decorator that adds `namespaced_policies`, `honor` or `ignore`."""
    return click.option(
        "--namespaced-policies", type=click.Choice(["honor", "ignore"]), default="honor", show_default=True, help=help
    )


def scheduler_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add `scheduler_configuration`, the SchedulerConfiguration of the cluster's scheduler."""

    @click.option(
        "--scheduler-configuration",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The KubeSchedulerConfiguration that the cluster's scheduler is started with. The API does not expose it; "
        "without the file the scheduler is assumed to have its default configuration.",
    )
    @wraps(command)
    def with_scheduler(*args: Any, scheduler_configuration: Path | None, **options: Any) -> R:
        return command(*args, scheduler_configuration=_read(scheduler_configuration), **options)

    return with_scheduler


def _read(file: Path | None) -> SchedulerConfiguration:
    from respread.scheduling import configuration  # noqa: PLC0415 - few commands need it

    if file is None:
        return configuration.SchedulerConfiguration()
    try:
        return configuration.read_configuration(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configuration.ConfigurationError) as error:
        raise CommandError(f"--scheduler-configuration {file}: {error}.") from error


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Have the shell offer files."""
    return [CompletionItem(incomplete, type="file")]


def _contexts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the kubeconfig's contexts."""
    from respread.kube.access import DEFAULT_KUBECONFIG  # noqa: PLC0415 - only for completion
    from respread.kube.kubeconfig import contexts_in  # noqa: PLC0415 - as above

    kubeconfig = ctx.params.get("kubeconfig") or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    return offered(incomplete, lambda: contexts_in(kubeconfig))


def offered(incomplete: str, find: Callable[[], Iterable[str]]) -> Items:
    """Return the found values that complete a word; none if they can't be found, as a shell can't show an error."""
    try:
        return [CompletionItem(each) for each in dict.fromkeys(find()) if each.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - see above
        return []


def run_program(program: click.Command, name: str) -> NoReturn:
    """Run a command line and exit: 0 for success, 2 for an error, 1 for what a command was asked to find."""
    try:
        code = program.main(prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader has seen enough. The rest goes nowhere, or Python would report an error at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE)
    except Exception:  # noqa: BLE001 - Python would exit with 1, which says what a command found
        traceback.print_exc()
        click.echo("Error: this is a bug in respread; please report it with the lines above.", err=True)
        sys.exit(FAILED)
    sys.exit(code if isinstance(code, int) else 0)
