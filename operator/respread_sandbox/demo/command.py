"""`respread demo`: scale-downs on a real control plane with and without prevention, and the restored spread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.table import Table

from respread.api.reasons import number_of
from respread.program.command_line import ENVIRONMENT
from respread_cli.render.output import ended_by_signals, make_console
from respread_cli.render.tables import FAINT, OVER, WITHIN
from respread_sandbox import Binaries, Sandbox, SandboxOptions
from respread_sandbox.demo.ending import Ending, Pair, Picture
from respread_sandbox.demo.screen import Screen
from respread_sandbox.demo.story import Story
from respread_sandbox.demo.world import World

NODES, ZONES = 12, 3


@click.command(context_settings={**ENVIRONMENT, "auto_envvar_prefix": "RESPREAD_DEMO"})
@click.option(
    "--deployments",
    type=click.IntRange(1, 200),
    default=40,
    show_default=True,
    help="How many Deployments to scale down, in each of two namespaces.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="The seed for the number of replicas of each Deployment. Kubernetes still chooses which pods it deletes.",
)
@click.option(
    "--patience",
    "patience_seconds",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="How long the operator may take.",
)
@click.option(
    "--ui", "with_page", is_flag=True, help="Serve the page of `respread ui` as well, and wait for you to look."
)
@click.option("--no-color", is_flag=True, help="Print without colors, as with the variable NO_COLOR.")
@click.pass_context
def demo(
    ctx: click.Context, *, deployments: int, seed: int, patience_seconds: float, with_page: bool, no_color: bool
) -> None:
    """Watch the spread being restored on a real control plane.

    The demo starts etcd, kube-apiserver, the scheduler and the controller manager on this machine, with simulated
    nodes in three zones, and the operator with exactly the permissions of manifests/. It deploys the same workloads
    twice, and scales them down without and with prevention, side by side. Then the operator restores what is
    violated, and the demo compares its evictions with the fewest possible. It stops everything at the end, also on
    Ctrl-C. The first time, it builds the control plane from Go modules, which takes some minutes.

    Exit code: 0 if prevention left nothing to be evicted and in the end every constraint holds, no pod is Pending and
    the evictions were the fewest possible, 1 if not, 2 for an error.
    """
    screen = Screen(make_console(no_color=no_color))
    with ended_by_signals():
        world = World.make(deployments, seed)
        ending = play(screen, world, patience_seconds=patience_seconds, with_page=with_page)
    ctx.exit(1 if ending.missing else 0)


def play(screen: Screen, world: World, *, patience_seconds: float, with_page: bool = False) -> Ending:
    """Show the demo from beginning to end, and return its result.

    The operator may take `patience_seconds`. `with_page` opens `respread ui` in the browser, and keeps everything
    running for it until Enter.

    Raises:
        SandboxError: something that the demo needs does not work; says what.
    """
    begun = time.monotonic()
    binaries = Binaries.find_or_build()
    with _sandbox(screen, binaries) as sandbox:
        ending = Story(sandbox, world, screen, patience_seconds=patience_seconds, with_page=with_page).tell()
        if with_page:
            screen.pause("The page shows how it ended. Press Enter to stop everything …")
    _tell_the_end(screen, ending, time.monotonic() - begun)
    return ending


@contextmanager
def _sandbox(screen: Screen, binaries: Binaries) -> Iterator[Sandbox]:
    with screen.step("Starting a Kubernetes control plane …") as step:
        sandbox = Sandbox.start(SandboxOptions(nodes=NODES, zones=ZONES, audit=True), binaries=binaries)
        version = sandbox.api.get("/version")["gitVersion"]
        step.result = f"Started Kubernetes {version} in a sandbox: {NODES} simulated nodes in {ZONES} zones"
    with sandbox:
        yield sandbox


def _tell_the_end(screen: Screen, ending: Ending, took_seconds: float) -> None:
    before, after = ending.before, ending.after
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for heading in ("", "WITHOUT PREVENTION", "WITH PREVENTION"):
        table.add_column(heading, justify="left" if not heading else "right")
    rows: tuple[tuple[str, Pair, Callable[[Picture], int]], ...] = (
        ("zone constraints violated by scale-down", before, lambda picture: len(picture.violated_zones)),
        ("worst skew over zones", before, lambda picture: picture.worst_skew),
        ("evictions needed", before, lambda picture: picture.fewest_evictions),
        ("evictions made", after, lambda picture: picture.evicted),
        ("zone constraints violated in the end", after, lambda picture: len(picture.violated_zones)),
        ("hostname constraints violated in the end", after, lambda picture: len(picture.violated_hosts)),
        ("pods Pending in the end", after, lambda picture: picture.pending),
    )
    for name, pair, number in rows:
        table.add_row(name, *(str(number(picture)) for picture in pair))
    screen.say()
    screen.console.print(table)
    screen.say()
    missing = ending.missing
    if missing:
        screen.say(f"[{OVER}]Not as it should be: {'; '.join(missing)}.[/]")
        return
    restored = ending.restored_seconds or 0
    screen.say(
        f"[{WITHIN}]Every constraint holds, {restored:.0f} s after the operator was allowed to evict; no pod is "
        "Pending; nothing else was moved.[/]"
    )
    screen.say(
        f"The API server's audit log has the same {number_of(ending.requests.evictions, 'eviction')}, and "
        f"{number_of(ending.requests.patches, 'pod deletion cost')} written to prevent more.\n"
        f"All of it took {took_seconds:.0f} s, and everything that was started is stopped."
    )
    screen.say(
        f"[{FAINT}]To play with such a cluster: respread sandbox up. To see how your own is spread: respread skew; it "
        "only reads.[/]"
    )
