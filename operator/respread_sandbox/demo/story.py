"""The demo from beginning to end: deploy twice, scale down with and without prevention, restore what is violated."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import respread_cli
from respread.api.policy import GROUP, PLURALS, Mode
from respread.api.reasons import number_of
from respread_cli.render.output import has_screen
from respread_cli.render.tables import FAINT, OVER, WITHIN
from respread_sandbox import Sandbox, SandboxError
from respread_sandbox.demo.ending import Ending, Pair, PodObserver, requests_of
from respread_sandbox.demo.screen import Screen
from respread_sandbox.demo.world import FEWEST_REPLICAS, MOST_REPLICAS, REPLICAS, SIDES, World, policy
from respread_sandbox.supervised import last_lines

NAME: Final = "respread"
OPERATOR_NAMESPACE: Final = "respread-system"
SERVICE_ACCOUNT: Final = "respread"
STOP_SECONDS: Final = 15
LOG_LINES: Final = 12
LOOK_EVERY_SECONDS: Final = 0.1
DEPLOY_SECONDS: Final = 120
PAGE_SECONDS: Final = 60.0
_PAGE: Final = "respread-ui"
_SERVING: Final = "Serving "
_DEFINITIONS: Final = tuple(f"{plural}.{GROUP}" for plural in PLURALS.values())
AGE_SECONDS: Final = 9.0
"""The age of the youngest pod before the scale-down. A ReplicaSet compares the logarithms of its pods' ages: of pods
that are some seconds old it deletes the youngest, which the scheduler has just spread; all older ones are equal, as in
real clusters."""
QUIET_SECONDS: Final = 5.0
"""How long nothing may happen after the spread is restored, so that an unnecessary eviction would be seen."""


class OperatorProcess:
    """A running `respread run`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def check(self) -> None:
        """Raise SandboxError, with the last lines of its log, if it has ended."""
        code = self._sandbox.exit_code(NAME)
        if code is not None:
            lines = last_lines(self._sandbox.log(NAME), LOG_LINES)
            raise SandboxError(f"the operator ended with exit code {code}:\n{lines}")

    def stop(self) -> int:
        """Stop it, and return its exit code. It is killed if it does not stop."""
        self._sandbox.signal_program(NAME, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while (code := self._sandbox.exit_code(NAME)) is None:
            if time.monotonic() > deadline:
                self._sandbox.signal_program(NAME, signal.SIGKILL)
            time.sleep(0.05)
        return code


@contextmanager
def operator_process(sandbox: Sandbox) -> Iterator[OperatorProcess]:
    """Run the operator until the context ends for any reason."""
    kubeconfig = sandbox.kubeconfig_for_service_account(OPERATOR_NAMESPACE, SERVICE_ACCOUNT)
    command = [sys.executable, "-m", "respread.program.main", "run", "--kubeconfig", str(kubeconfig)]
    command += ["--leader-election", "--lease-namespace", OPERATOR_NAMESPACE]
    command += ["--listen-address", "127.0.0.1:0", "--log-format", "json"]
    sandbox.start_program(NAME, command, environment_of_programs())
    running = OperatorProcess(sandbox)
    try:
        yield running
    finally:
        if sandbox.exit_code(NAME) is None:
            running.stop()


def environment_of_programs() -> dict[str, str]:
    """Return our environment without variables that select a cluster or options."""
    return {
        name: value for name, value in os.environ.items() if name != "KUBECONFIG" and not name.startswith("RESPREAD_")
    }


class Story:
    """Runs the demo on one screen, in one sandbox."""

    def __init__(
        self, sandbox: Sandbox, world: World, screen: Screen, *, patience_seconds: float, with_page: bool = False
    ) -> None:
        """Create the demo.

        The operator may take `patience_seconds`. `with_page` serves the page of `respread ui` as well.
        """
        self._sandbox = sandbox
        self._world = world
        self._screen = screen
        self._patience_seconds = patience_seconds
        self._with_page = with_page
        self._observers: tuple[PodObserver, ...] = ()

    def tell(self) -> Ending:
        """Run the whole demo, and return its result.

        Raises:
            SandboxError: something that the demo needs does not work; says what.
        """
        screen = self._screen
        self._install()
        self._observers = tuple(PodObserver(self._sandbox.api, side.namespace, self._world.names) for side in SIDES)
        try:
            with operator_process(self._sandbox) as operator:
                if self._with_page:
                    self._serve_page()
                self._deploy(operator)
                if self._with_page:
                    screen.pause("Press Enter to scale all of them down …")
                before = self._scale_down(operator)
                restored_seconds = self._restore(operator, before)
                after, code = self._look(), operator.stop()
        finally:
            for observer in self._observers:
                observer.close()
        return Ending(
            before=before,
            after=after,
            restored_seconds=restored_seconds,
            operator_exit_code=code,
            requests=requests_of(f"{OPERATOR_NAMESPACE}:{SERVICE_ACCOUNT}", self._sandbox.files.audit_log),
        )

    def _install(self) -> None:
        with self._screen.step("Applying crds/ and manifests/ …") as step:
            sandbox = self._sandbox
            sandbox.apply(shipped("crds"))
            sandbox.wait_for_definitions(*_DEFINITIONS)
            sandbox.apply(shipped("manifests") / "overlays" / "prevention")
            # Its pods would be simulated and do nothing; the operator is to be a process of this machine instead.
            sandbox.kubectl("scale", "deployment/respread", "--replicas=0", f"--namespace={OPERATOR_NAMESPACE}")
            for side in SIDES:
                sandbox.create_namespace(side.namespace)
            self._apply_policies("DryRun")
            step.result = "Applied crds/ and manifests/overlays/prevention, which lets the operator write to pods"

    def _apply_policies(self, mode: Mode) -> None:
        self._sandbox.apply("\n---\n".join(json.dumps(policy(side, mode)) for side in SIDES))

    def _deploy(self, operator: OperatorProcess) -> None:
        screen, world = self._screen, self._world
        what = f"{len(world.names)} Deployments of {REPLICAS} pods"
        with screen.step(f"Starting the operator, and deploying {what}, twice …") as step:
            world.deploy(self._sandbox.api)

            def ranked() -> bool:
                operator.check()
                pair = self._look()
                all_settled = all(picture.settled(world.pods_before) for picture in pair)
                return all_settled and pair.prevented.ranked == world.pods_before

            pods = f"twice {world.pods_before} Ready pods, half of them with a pod deletion cost"
            self._wait(ranked, pods, DEPLOY_SECONDS)
            time.sleep(AGE_SECONDS)
            step.result = f"Deployed {what}, in two namespaces, all Ready"
        screen.say(f"  [{FAINT}]each spread over zones (DoNotSchedule) and hosts (ScheduleAnyway), maxSkew 1[/]")
        for side in SIDES:
            screen.say(f"  [{FAINT}]{side.namespace}: {_in_a_line(policy(side, 'DryRun')['spec'])}[/]")
        screen.say(
            f"  [{FAINT}]In the second, Respread gives every pod a controller.kubernetes.io/pod-deletion-cost.[/]"
        )

    def _serve_page(self) -> None:
        with self._screen.step("Starting respread ui …") as step:
            url = serve_page(self._sandbox)
            step.result = "Started respread ui, which shows both namespaces as they change"
        self._screen.say(f"  [bold]Open {url}[/]")
        if self._screen.console.is_terminal and has_screen():
            webbrowser.open(url)

    def _scale_down(self, operator: OperatorProcess) -> Pair:
        screen, world = self._screen, self._world
        screen.say()
        screen.say(
            f"[bold]Now every Deployment is scaled down to {FEWEST_REPLICAS}-{MOST_REPLICAS} pods,[/] the same in both "
            "namespaces. The operator evicts nothing yet."
        )
        screen.say(
            f"  [{FAINT}]Three numbers are a Deployment's pods in zone-a, zone-b and zone-c; {screen.cross} is a "
            "violated constraint.[/]"
        )
        screen.say()
        with screen.live() as live:

            def show() -> Pair:
                operator.check()
                pair = self._look()
                needed = [f"[bold]{picture.fewest_evictions}[/]" for picture in pair]
                live.show(pair, f"Evictions needed: {needed[0]} without prevention, {needed[1]} with it")
                return pair

            for _ in world.scale_down(self._sandbox.api):
                show()
            settled = f"twice {world.pods_after} Ready pods"
            self._wait(lambda: all(each.settled(world.pods_after) for each in show()), settled, DEPLOY_SECONDS)
            return show()

    def _restore(self, operator: OperatorProcess, before: Pair) -> float | None:
        """Let the operator evict; return the seconds until the spread was restored, None if it was not."""
        screen = self._screen
        for observer in self._observers:
            observer.begin_count()
        needed = before.without.fewest_evictions
        screen.say()
        screen.say(
            f"[bold]Now the operator may evict[/] in both (mode: Enforce). It takes {number_of(needed, 'eviction')} at "
            "least to restore the spread without prevention:"
        )
        screen.say(f"  [{FAINT}](waits as short as its policies have are for the demo; the defaults are 30s and 1m)[/]")
        screen.say()
        begun = time.monotonic()
        self._apply_policies("Enforce")
        return self._follow(operator, before, begun)

    def _follow(self, operator: OperatorProcess, before: Pair, begun: float) -> float | None:
        """Show all changes until there are none; return the seconds until the spread was restored."""
        last, last_change, pods = before, begun, self._world.pods_after
        with self._screen.live() as live:
            while True:
                operator.check()
                pair, now = self._look(), time.monotonic()
                if pair != last:
                    last, last_change = pair, now
                live.show(pair, self._eviction_line(pair, before))
                holds = all(
                    not picture.violated_zones and not picture.violated_hosts and picture.settled(pods)
                    for picture in pair
                )
                if holds and now - last_change > QUIET_SECONDS:
                    return last_change - begun
                if now - begun > self._patience_seconds:
                    return None
                time.sleep(LOOK_EVERY_SECONDS)

    def _eviction_line(self, pair: Pair, before: Pair) -> str:
        violated = [len(picture.violated_zones) for picture in pair]
        made = [
            f"[bold]{picture.evicted}[/] of {was.fewest_evictions}" for picture, was in zip(pair, before, strict=True)
        ]
        style = OVER if any(violated) else WITHIN
        return f"Evictions: [{style}]{made[0]} without prevention, {made[1]} with it[/]"

    def _look(self) -> Pair:
        return Pair(*(observer.picture() for observer in self._observers))

    def _wait(self, until: Callable[[], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                raise SandboxError(f"waited {seconds:.0f} s in vain for {what}")
            time.sleep(LOOK_EVERY_SECONDS)


def _in_a_line(spec: dict[str, Any]) -> str:
    shown = {name: spec[name] for name in ("mode", "prevention", "quietPeriod")}
    return json.dumps(shown).replace('"', "")[1:-1]


def serve_page(sandbox: Sandbox) -> str:
    """Serve the page until the sandbox ends, and return its URL.

    Raises:
        SandboxError: it does not start.
    """
    command = [sys.executable, "-m", "respread_cli.main", "ui", "--no-open", "--kubeconfig", str(sandbox.kubeconfig)]
    sandbox.start_program(_PAGE, command, environment_of_programs())
    deadline = time.monotonic() + PAGE_SECONDS
    while True:
        said = sandbox.log(_PAGE).read_text(encoding="utf-8", errors="replace")
        for line in said.splitlines():
            if line.startswith(_SERVING):
                return line.removeprefix(_SERVING)
        if sandbox.exit_code(_PAGE) is not None or time.monotonic() > deadline:
            raise SandboxError(f"the page could not be served:\n{said}")
        time.sleep(0.05)


def shipped(name: str) -> Path:
    """Return the folder crds/ or manifests/: in the wheel inside the package of the commands, else in the checkout.

    Raises:
        SandboxError: there is none.
    """
    package = Path(respread_cli.__file__).parent
    for root in (package, package.parents[1]):
        if (root / name).is_dir():
            return root / name
    raise SandboxError(f"{name}/ came neither with the package in {package} nor is it beside a checkout of it")
