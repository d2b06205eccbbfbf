"""`respread ui`: shows the cluster in a browser."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

import click
import msgspec

from respread.kube.access import DEFAULT_KUBECONFIG
from respread.kube.kubeconfig import contexts_in, current_context
from respread.lean_process import prepare_for_long
from respread.program.command_line import ENVIRONMENT, CommandError, CommandWithExamples, Example
from respread_cli.options import planning_inputs
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.render.output import has_screen
from respread_cli.report.planned import Planning, PlanningOptions, check_standard_input
from respread_cli.ui.engine import Contexts, Engine, open_source
from respread_cli.ui.guard import Guard, new_token
from respread_cli.ui.history import read_past
from respread_cli.ui.server import HOST, PageServer, listener_on, listening

ANY_PORT: Final = 0
_OF_A_CONTEXT: Final = re.compile(r"(?:((?!https?://).+?)=)?(https?://.+)")

EXAMPLES: Final = (
    Example("Look at the cluster of the current context", "ui"),
    Example("With what happened before", "ui --prometheus http://127.0.0.1:9090"),
    Example(
        "And that of another context", "ui --prometheus http://127.0.0.1:9090 --prometheus west=http://127.0.0.1:9091"
    ),
    Example("Look at a file, on the same port each time", "ui --snapshot cluster.json.gz --port 8765"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=ANY_PORT,
    show_default="any free one",
    help="The port of 127.0.0.1 to listen on.",
)
@click.option(
    "--open/--no-open", "opens", default=None, help="Open the page in a browser.  [default: if there is a screen]"
)
@click.option(
    "--token/--no-token",
    "with_token",
    default=True,
    help="Put a secret into the URL, without which nothing is answered. In a pod, where only `kubectl port-forward` "
    "and a proxy beside it reach the page, it is not needed.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Answer requests for this host too, such as that of a proxy in front of the page. Can be repeated.",
)
@click.option(
    "--prometheus",
    multiple=True,
    metavar="[CONTEXT=]URL",
    help="A Prometheus that scrapes the operator of this cluster, or of a context that is chosen on the page: the page "
    "shows the last 6 hours that it knows. Can be repeated.",
)
@planning_inputs
def ui(
    *,
    port: int,
    opens: bool | None,
    with_token: bool,
    hosts: tuple[str, ...],
    prometheus: tuple[str, ...],
    planning: PlanningOptions,
    cluster: ClusterOptions,
) -> None:
    """Show the cluster's spread in a browser.

    The command serves a page on this machine only. The page shows how pods are spread, what is violated, what the plan
    moves and why, and what a scale-down, a drain or a lost zone would do, with the results of `respread skew`, `plan`,
    `explain` and `simulate`. It follows the cluster, and only reads, with your own permissions. Anyone who knows the
    printed URL can read it, so don't share it. Ctrl-C ends the command.
    """
    check_standard_input(cluster, planning)
    names = _names(cluster)
    past = _prometheus_urls(prometheus, cluster, names)
    try:
        listener = listener_on(port)
    except OSError as error:
        raise CommandError(
            f"port {port} of {HOST} is not available: {error.strerror or error}; name another by --port."
        ) from error
    bound: int = listener.getsockname()[1]
    token = new_token() if with_token else None

    def ready() -> None:
        url = f"http://{HOST}:{bound}/" + (f"{token}/" if token else "")
        click.echo(f"Serving {url}")
        click.echo("It only reads. Ctrl-C ends it.", err=True)
        if (sys.stdout.isatty() and has_screen()) if opens is None else opens:
            webbrowser.open(url)

    with closing(listener), suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_serve(Guard(token, bound, hosts), listener, _Shown(planning, cluster, names, past), ready))


class _Shown(NamedTuple):
    """What is shown."""

    planning: PlanningOptions
    cluster: ClusterOptions
    contexts: tuple[str, ...]
    prometheus: Mapping[str | None, str]
    """The URL of a Prometheus by context; None: of what is shown first."""


async def _serve(guard: Guard, listener: socket.socket, shown: _Shown, ready: Callable[[], None]) -> None:
    """Serve until interrupted. `ready` is called when the cluster was read and the page can be loaded."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    if sys.platform != "win32" and task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    arrived = asyncio.Event()
    with closing(Contexts(shown.contexts, partial(_opened, shown, loop, arrived))) as contexts:
        engine = contexts.open()
        with closing(PageServer(engine, guard, arrived, contexts)) as server:
            await server.first()
            prepare_for_long()  # Otherwise a look at everything that was read takes seconds now and then.
            async with listening(server, listener):
                ready()
                await server.follow()


@contextmanager
def _opened(
    shown: _Shown, loop: asyncio.AbstractEventLoop, arrived: asyncio.Event, context: str | None
) -> Iterator[Engine]:
    """Read the cluster of a context, or of the options, while the context manager lasts."""
    planning, cluster, _, prometheus = shown
    url = prometheus.get(context)
    read_history = (lambda _: ()) if url is None else partial(read_past, url)
    if context is not None:
        cluster = msgspec.structs.replace(cluster, context=context)
    with open_source(cluster, with_policies=not planning.filenames, changed=partial(_wake, loop, arrived)) as source:
        yield Engine(source, partial(Planning, planning), _arguments(cluster, planning), read_history)


def _names(cluster: ClusterOptions) -> tuple[str, ...]:
    """Return the contexts among which the page lets choose; none in a pod, or for a snapshot."""
    try:
        return () if cluster.snapshot is not None else tuple(contexts_in(_kubeconfig(cluster)))
    except (OSError, ValueError):
        return ()


def _prometheus_urls(given: tuple[str, ...], cluster: ClusterOptions, names: tuple[str, ...]) -> dict[str | None, str]:
    """Return the URLs of Prometheus by context.

    Raises:
        CommandError: a value is no URL, or names no context.
    """
    urls: dict[str | None, str] = {}
    for each in given:
        found = _OF_A_CONTEXT.fullmatch(each)
        if found is None:
            raise CommandError(f"--prometheus {each} is no URL such as http://127.0.0.1:9090, nor CONTEXT=URL.")
        context, url = found.groups()
        if context is not None and context not in names:
            there_are = f"it has {', '.join(names)}" if names else "there is none to choose from"
            raise CommandError(f"--prometheus {each}: there is no context {context} in the kubeconfig; {there_are}.")
        urls[context] = url
    if names:  # The first is chosen again by its name.
        first = cluster.context or current_context(_kubeconfig(cluster))
        url = urls.get(None) or urls.get(first)
        urls |= {} if url is None else {None: url, first: url}
    return urls


def _kubeconfig(cluster: ClusterOptions) -> str:
    return cluster.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG


def _wake(loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> None:
    """Set an event of a loop, from any thread."""
    if arrived.is_set():  # What is there is taken after the event was cleared, so nothing is missed.
        return
    with suppress(RuntimeError):  # The loop is closed: nobody wants to know any more.
        loop.call_soon_threadsafe(arrived.set)


def _arguments(cluster: ClusterOptions, planning: PlanningOptions) -> tuple[str, ...]:
    """Return the options with which another command reads the same cluster."""
    named = (("--kubeconfig", cluster.kubeconfig), ("--context", cluster.context), ("--snapshot", cluster.snapshot))
    words = [word for name, value in named if value is not None for word in (name, value)]
    words += [word for file in planning.filenames for word in ("--filename", file)]
    return (*words, *(() if planning.namespaced_policies else ("--namespaced-policies", "ignore")))
