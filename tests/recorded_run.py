"""A newcomer's way from the README to an eviction on a dashboard, typed as written, in a new clone without caches.

    python -m tests.recorded_run [--warm] [TRANSCRIPT]

Only Go, Python, make, Helm and Prometheus are there before. It writes what was typed and shown, with the seconds since
the beginning, and ends with 1 as soon as a command fails. With `--warm`, the caches of this user are used.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

import requests

from tests.go_programs import PROGRAMS, find_or_build
from tests.integration.prometheus import Prometheus
from tests.processes import wait_until
from tests.prometheus_programs import require
from tests.shown_commands import lines

ROOT: Final = Path(__file__).parents[1]
_PORTS: Final = (8080, 9090)
"""What operator and Prometheus listen on, as the pages have it."""
_LEFT_OUT: Final = re.compile(r"$|#|make test\b|respread ui +#|.*-n monitoring\b")
"""Besides comments: the tests, the page without Prometheus, and what needs charts of Prometheus and Grafana."""
_OF_THE_USER: Final = re.compile(r"GO(PATH|CACHE|MODCACHE)$|PIP_CACHE|XDG_|KUBE|RESPREAD|VIRTUAL_ENV|MAKE|MFLAGS")
_PANELS: Final = {"Evictions by answer": "Evicted", "Outcomes": "Improved"}
_MOST_SCALE_DOWNS: Final = 10
_PATIENCE_SECONDS: Final = 120
_DONE: Final = "-- done --"


class Terminal:
    """A shell that commands are typed into, one after another."""

    def __init__(self, folder: Path, environment: dict[str, str], transcript: TextIO) -> None:
        self.shown = ""
        self._begun = time.monotonic()
        self._transcript = transcript
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.types("shopt -s expand_aliases", echo=False)  # as in a terminal

    def says(self, text: str) -> None:
        """Write a line of the transcript."""
        self._transcript.write(f"{text}\n")
        self._transcript.flush()

    def types(self, line: str, *, echo: bool = True) -> str:
        """Type a command, and return what it shows.

        Raises:
            SystemExit: it has failed.
        """
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        if echo:
            self.says(f"[{time.monotonic() - self._begun:4.0f} s] $ {line}")
        self._shell.stdin.write(f"{{ {line}\n}} </dev/null\necho; echo '{_DONE}' $?\n")
        self._shell.stdin.flush()
        before, code = len(self.shown), ""
        for each in self._shell.stdout:
            if each.startswith(_DONE):
                code = each.removeprefix(_DONE).strip()
                break
            self.shown += each
            if each.strip():
                self.says(each.rstrip())
        if code != "0":
            self.says(f"It has failed, with {code or 'the shell'}.")
            raise SystemExit(1)
        return self.shown[before:]

    def close(self) -> None:
        """End the shell and what it runs in the background."""
        with self._shell:
            self.types('jobs=$(jobs -p); [ -z "$jobs" ] || kill $jobs; wait', echo=False)
            self.types("respread sandbox down --all", echo=False)


def main() -> int:
    """Record the run, and return 0 once a dashboard's data have shown the eviction."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded_run")
    parser.add_argument("transcript", nargs="?", type=Path, default=ROOT / "build" / "recorded-run.txt")
    parser.add_argument("--warm", action="store_true", help="with the caches of this user")
    options = parser.parse_args()
    for port in _PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                sys.exit(f"Something else listens on port {port}, which the pages name")
    options.transcript.parent.mkdir(parents=True, exist_ok=True)
    with (
        _machine(warm=options.warm) as (clone, environment),
        options.transcript.open("w", encoding="utf-8") as transcript,
        closing(Terminal(clone, environment, transcript)) as terminal,
    ):
        newcomer = Newcomer(terminal, clone)
        newcomer.tries_it()
        newcomer.looks_and_installs()
        newcomer.sees_an_eviction()
    sys.stdout.write(f"An eviction is on the dashboard: {options.transcript}\n")
    return 0


@contextmanager
def _machine(*, warm: bool) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a new clone and the environment of a user with nothing but the programs that the pages take for granted."""
    with tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        clone, programs = folder / "respread", folder / "bin"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), clone], check=True)
        programs.mkdir()
        (programs / "helm").symlink_to(find_or_build(PROGRAMS["helm"]))
        (programs / "prometheus").symlink_to(require("prometheus"))
        environment = {name: value for name, value in os.environ.items() if warm or not _OF_THE_USER.match(name)}
        if not warm:
            settings = subprocess.run(["go", "env", "GOENV"], check=True, capture_output=True, text=True).stdout
            environment |= {"HOME": name, "GOENV": settings.strip(), "GOFLAGS": "-modcacherw"}  # to be removed
        search = [each for each in environment["PATH"].split(":") if not Path(each, "respread").exists()]
        (temporary := folder / "t").mkdir()  # where the sandbox is
        environment |= {"PATH": ":".join([str(programs), *search]), "TMPDIR": str(temporary), "COLUMNS": "80"}
        yield clone, environment


class Newcomer:
    """Follows the pages."""

    def __init__(self, terminal: Terminal, clone: Path) -> None:
        self._terminal = terminal
        self._clone = clone
        self._for_later: list[str] = []
        """What names a workload that is created later."""

    def _read(self, page: str, section: str) -> list[str]:
        self._terminal.says(f"\n# {page}: {section}")
        return [each for each in lines(self._clone / page, section) if not _LEFT_OUT.match(each)]

    def tries_it(self) -> None:
        """Run the demo, and start a sandbox."""
        for line in self._read("README.md", "Try it"):
            shown = self._terminal.types(line)
            for told in re.findall(r"^  ((?:export|alias) .*)$", shown, re.MULTILINE):
                self._terminal.types(told)

    def looks_and_installs(self) -> None:
        """Look at the sandbox by the installed commands, and install the operator by kubectl and by Helm."""
        for line in self._read("README.md", "Look at your own cluster"):
            if "deploy/web" in line:
                self._for_later.append(line)
            else:
                self._terminal.types(line)
        for page, section in (
            ("README.md", "Install it"),
            ("docs/install.md", "Upgrade and remove"),
            ("docs/sandbox.md", "An eviction on a dashboard"),
        ):
            for line in self._read(page, section):
                self._terminal.types(line)

    def sees_an_eviction(self) -> None:
        """Scale down, wait for the eviction and look at it everywhere, and remove everything."""
        typed = self._read("docs/quick-start.md", "See an eviction on a dashboard")
        for line in typed[typed.index("kubectl create namespace shop") :]:
            if line.startswith("kubectl scale"):
                self._scale_down(line)
            elif line.startswith("kubectl events"):
                wait_until(lambda line=line: "EvictedForSpread" in self._terminal.types(f"sleep 10; {line}"), line)  # type: ignore[misc]
                self._look_at_the_dashboard()
                for each in self._for_later:
                    self._terminal.types(each)
            elif not line.startswith("respread skew"):  # which every scale-down is followed by
                self._terminal.types(line)

    def _scale_down(self, line: str) -> None:
        """Scale down. If the constraint still holds, scale up and down again, as the page says."""
        for _ in range(_MOST_SCALE_DOWNS):
            self._terminal.types(line)
            if "✗" in self._terminal.types("respread skew -n shop"):
                return
            for again in ("scale --replicas=0", "rollout status", "scale --replicas=12", "rollout status"):
                self._terminal.types(f"kubectl {again} -n shop deployment/web")
            self._terminal.types("sleep 10")
        raise SystemExit("The scale-downs have violated nothing")

    def _look_at_the_dashboard(self) -> None:
        """Wait until the queries of the dashboard's panels and the page show the eviction."""
        prometheus = Prometheus(self._clone / "build" / "prometheus.log")
        for title, expected in _PANELS.items():

            def drawn(title: str = title, expected: str = expected) -> list[Any]:
                series = prometheus.panel(title)
                return [each for each in series if expected in each["metric"].values() and float(each["value"][1]) > 0]

            wait_until(lambda drawn=drawn: bool(drawn()), f"the panel {title} to show {expected}")  # type: ignore[misc]
            self._terminal.says(f"# The dashboard's panel {title!r}: {drawn()}")
        (url,) = set(re.findall(r"Serving (http://127\.0\.0\.1:\S+)", self._terminal.shown))
        history = requests.get(f"{url}api/history", timeout=_PATIENCE_SECONDS).json()
        evicted = [each["text"] for each in history["happenings"] if each["kind"] == "evicted"]
        if not evicted or not history["points"]:
            raise SystemExit(f"The page does not show the eviction: {history}")
        self._terminal.says(f"# The page's history: {evicted}, and Prometheus's points: {len(history['points'])}")


if __name__ == "__main__":
    raise SystemExit(main())
