"""The demo from beginning to end: deploy, scale down, let the operator restore the spread, and check all of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from respread.api.policy import GROUP, PLURALS
from respread.cli.demo.audit import OperatorRequests, requests_of
from respread.cli.demo.observer import PodObserver
from respread.cli.demo.operator_process import (
    OPERATOR_NAMESPACE,
    SERVICE_ACCOUNT,
    OperatorProcess,
    operator_process,
)
from respread.cli.demo.picture import Picture
from respread.cli.demo.screen import Screen
from respread.cli.demo.world import FEWEST_REPLICAS, MOST_REPLICAS, NAMESPACE, REPLICAS, World, policy
from respread.cli.domain_bars import FAINT, OVER, WITHIN
from respread.cli.shipped_files import crds, manifests
from respread.sandbox import Sandbox, SandboxError

LOOK_EVERY_SECONDS: Final = 0.1
_MOST_NAMED: Final = 5
DEPLOY_SECONDS: Final = 120
_DEFINITIONS: Final = tuple(f"{plural}.{GROUP}" for plural in PLURALS.values())
QUIET_SECONDS: Final = 5.0
"""How long nothing may happen any more after the spread is restored: time for an eviction too many to be made."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended."""

    before: Picture
    after: Picture
    restored_seconds: float | None
    """From the operator's start until every constraint held; None if they don't."""
    operator_exit_code: int
    requests: OperatorRequests

    @property
    def missing(self) -> list[str]:
        """What is not as it should be, each as a sentence without its end; nothing if all is."""
        after, fewest, requests = self.after, self.before.fewest_evictions, self.requests
        not_ready = after.pods - after.ready
        judged = (
            (after.violated_zones, f"the zone constraint of {_listed(after.violated_zones)} does not hold"),
            (after.violated_hosts, f"the hostname constraint of {_listed(after.violated_hosts)} does not hold"),
            (after.pending, f"{_are(after.pending, 'pod')} Pending"),
            (not_ready, f"{_are(not_ready, 'pod')} not Ready"),
            (after.terminating, f"{_are(after.terminating, 'pod')} still being deleted"),
            (after.evicted != fewest, f"{_counted(after.evicted, 'eviction')}, and {fewest} would have done"),
            (
                after.evicted != requests.evictions,
                f"the API server carried out {_counted(requests.evictions, 'eviction')} for the operator",
            ),
            (
                after.otherwise_deleted,
                f"{_are(after.otherwise_deleted, 'pod')} gone otherwise than by an eviction",
            ),
            (requests.refused, f"the operator's rights do not cover {_listed(requests.refused)}"),
            (self.operator_exit_code, f"the operator ended with exit code {self.operator_exit_code}"),
        )
        return [sentence for wrong, sentence in judged if wrong]


class Story:
    """Tells it on one screen, in one sandbox."""

    def __init__(self, sandbox: Sandbox, world: World, screen: Screen, *, patience_seconds: float) -> None:
        """Prepare.

        Args:
            sandbox: Where it takes place.
            world: What is deployed.
            screen: Where it is shown.
            patience_seconds: How long the operator may take.
        """
        self._sandbox = sandbox
        self._world = world
        self._screen = screen
        self._patience_seconds = patience_seconds

    def tell(self) -> Ending:
        """Do everything, and return how it ended.

        Raises:
            SandboxError: something that the demo needs does not work; says what.
        """
        self._install()
        observer = PodObserver(self._sandbox.api, self._world.names)
        try:
            self._deploy(observer)
            before = self._scale_down(observer)
            return self._restore(observer, before)
        finally:
            observer.close()

    def _install(self) -> None:
        with self._screen.step("Applying crds/ and manifests/ …") as step:
            sandbox = self._sandbox
            sandbox.apply(crds())
            sandbox.wait_for_definitions(*_DEFINITIONS)
            sandbox.apply(manifests() / "base")
            # Its pods would be simulated and do nothing; the operator is to be a process of this machine instead.
            sandbox.kubectl("scale", "deployment/respread", "--replicas=0", f"--namespace={OPERATOR_NAMESPACE}")
            sandbox.create_namespace(NAMESPACE)
            step.result = "Applied crds/ and manifests/"

    def _deploy(self, observer: PodObserver) -> None:
        deployments, pods = len(self._world.names), len(self._world.names) * REPLICAS
        with self._screen.step(f"Deploying {deployments} Deployments of {REPLICAS} pods …") as step:
            self._world.deploy(self._sandbox.api)
            self._wait(lambda: observer.picture().settled(pods), f"{pods} Ready pods", DEPLOY_SECONDS)
            step.result = f"Deployed {deployments} Deployments of {REPLICAS} pods, all Ready"
        self._screen.say(f"  [{FAINT}]spread over zones (DoNotSchedule) and hosts (ScheduleAnyway), maxSkew 1[/]")

    def _scale_down(self, observer: PodObserver) -> Picture:
        screen, world = self._screen, self._world
        screen.say()
        screen.say(
            f"[bold]Now each is scaled down to {FEWEST_REPLICAS}-{MOST_REPLICAS} pods.[/] Which go is not chosen by "
            "zone:"
        )
        pods = sum(world.replicas_after.values())
        with screen.live() as live:
            for _ in world.scale_down(self._sandbox.api):
                live.show(observer.picture(), self._skew_line(observer.picture()))

            def settled() -> bool:
                picture = observer.picture()
                live.show(picture, self._skew_line(picture))
                return picture.settled(pods)

            self._wait(settled, f"{pods} Ready pods", DEPLOY_SECONDS)
        return observer.picture()

    def _restore(self, observer: PodObserver, before: Picture) -> Ending:
        screen, sandbox = self._screen, self._sandbox
        fewest = before.fewest_evictions
        observer.begin_count()
        screen.say()
        screen.say(
            f"[bold]Now the operator starts[/], with its rights of manifests/. It takes {_counted(fewest, 'eviction')} "
            "at least:"
        )
        sandbox.apply(json.dumps(policy()))
        screen.say(f"  [{FAINT}]its policy: {_in_a_line(policy()['spec'])}[/]")
        screen.say(f"  [{FAINT}](waits so short are for the demo; the defaults are 30s and 1m)[/]")
        pods = sum(self._world.replicas_after.values())
        with operator_process(sandbox) as operator:
            begun = time.monotonic()
            restored = self._follow(observer, operator, before, pods, begun)
            after = observer.picture()
            code = operator.stop()
        return Ending(
            before=before,
            after=after,
            restored_seconds=restored,
            operator_exit_code=code,
            requests=requests_of(f"{OPERATOR_NAMESPACE}:{SERVICE_ACCOUNT}", sandbox.audit_log),
        )

    def _follow(
        self, observer: PodObserver, operator: OperatorProcess, before: Picture, pods: int, begun: float
    ) -> float | None:
        """Show what happens until nothing does any more; return after how many seconds the spread was restored."""
        last, last_change = before, begun
        with self._screen.live() as live:
            while True:
                operator.check()
                picture, now = observer.picture(), time.monotonic()
                if picture != last:
                    last, last_change = picture, now
                live.show(picture, self._eviction_line(picture, before.fewest_evictions))
                holds = not picture.violated_zones and not picture.violated_hosts and picture.settled(pods)
                if holds and now - last_change > QUIET_SECONDS:
                    return last_change - begun
                if now - begun > self._patience_seconds:
                    return None
                time.sleep(LOOK_EVERY_SECONDS)

    def _skew_line(self, picture: Picture) -> str:
        violated = len(picture.violated_zones)
        constraints = f"{violated} of {len(self._world.names)} zone constraints"
        return f"[{OVER if violated else WITHIN}]{constraints} violated, worst skew {picture.worst_skew}[/]"

    def _eviction_line(self, picture: Picture, fewest: int) -> str:
        return (
            f"{self._skew_line(picture)}; evictions: [bold]{picture.evicted}[/] of {fewest}; Pending: {picture.pending}"
        )

    def _wait(self, until: Callable[[], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                raise SandboxError(f"waited {seconds:.0f} s in vain for {what}")
            time.sleep(LOOK_EVERY_SECONDS)


def _in_a_line(spec: dict[str, Any]) -> str:
    shown = {name: spec[name] for name in ("mode", "quietPeriod", "victims")}
    return json.dumps(shown).replace('"', "")[1:-1]


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _are(number: int, thing: str) -> str:
    return f"{_counted(number, thing)} {'is' if number == 1 else 'are'}"
