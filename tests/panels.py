"""Pictures of the dashboard's panels, drawn from data of a real Prometheus that scraped a real operator.

    python -m tests.panels docs/monitoring

`make panels` runs it. In a cluster of simulated nodes, three Deployments start in one zone, and a fourth whose pods
may not be evicted. Two zones are added. The policy first only plans and then evicts. Finally the Deployments are scaled
down with prevention.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from respread_sandbox import Sandbox, SandboxOptions
from tests.integration.operator_process import OperatorProcess, install, policy
from tests.integration.prevention_cluster import RIGHT
from tests.integration.prometheus import PANELS, Prometheus, scraping
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods,
    scale,
    wait_for_ready_pods,
    wait_until,
)

PICTURES: Final = {
    "state": ("Skew above maxSkew", "Why groups stay violated", "Constraints that can't work"),
    "evictions": ("Evictions by answer", "Outcomes", "In flight"),
    "prevention": ("Pod deletion costs written", "Evictions avoided"),
    "health": ("Delay behind the cluster", "Requests to the API server", "Memory"),
}
"""The panels of each picture."""
NAMESPACE: Final = "shop"
REPLICAS: Final = {"web": 6, "api": 9, "search": 12}
HELD: Final = "legacy"
PHASE_SECONDS: Final = 30
WIDTH, HEIGHT = 3.6, 2.3
"""The size of a panel in inches."""
MIB: Final = 2**20
STYLE: Final = {
    "font.family": "sans-serif",
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "legend.fontsize": 6,
    "svg.fonttype": "none",  # text stays text, which is smaller and can be read aloud
    "svg.hashsalt": "respread",
    "path.simplify_threshold": 0.5,
}


class Line(NamedTuple):
    """A line of a panel."""

    legend: str
    seconds: tuple[float, ...]
    """Seconds since the start of the recording."""
    values: tuple[float, ...]


def main() -> None:
    """Record a run, and draw the pictures into the given folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as here, mpl.rc_context(STYLE):
        panels = recorded(Path(here))
        for name, titles in PICTURES.items():
            figure = Figure(figsize=(WIDTH * len(titles), HEIGHT), layout="constrained")
            for place, title in zip(figure.subplots(1, len(titles), squeeze=False)[0], titles, strict=True):
                _draw(place, title, panels[title])
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Title": f"Dashboard: {', '.join(titles)}"})


def recorded(folder: Path) -> dict[str, list[Line]]:
    """Return the lines of each panel."""
    with Sandbox.start(SandboxOptions(nodes_per_zone=(8,))) as sandbox:
        _begin(sandbox)
        with OperatorProcess(sandbox, folder) as operator:
            operator.wait_until_ready()
            with scraping(operator.address(), folder) as prometheus:
                begun = time.time()
                time.sleep(PHASE_SECONDS)
                for zone in ("zone-b", "zone-c"):
                    sandbox.nodes.add(8, zone=zone)
                time.sleep(PHASE_SECONDS)
                sandbox.apply(_policy("Enforce"))
                only_the_held = [1.0]
                wait_until(lambda: _shown(prometheus, "Violated groups") == only_the_held, "the constraints to hold")
                time.sleep(PHASE_SECONDS)
                _scale_down(sandbox)
                ended = time.time()
                titles = [title for panels in PICTURES.values() for title in panels]
                return {title: list(_lines(prometheus, title, begun, ended)) for title in titles}


def _begin(sandbox: Sandbox) -> None:
    install(sandbox)
    scale(sandbox, "respread-system", "respread", 0)  # its pods have constraints too
    wait_until(lambda: not pods(sandbox, "respread-system"), "the installed operator's pods to be gone")
    sandbox.apply(RIGHT)
    sandbox.create_namespace(NAMESPACE)
    protected = {"respread.dev/evict": "never"}
    for name, replicas in {**REPLICAS, HELD: 4}.items():
        annotations = protected if name == HELD else None
        constraints = [constraint(ZONE, name)]
        create_deployment(
            sandbox, NAMESPACE, deployment(name, replicas=replicas, constraints=constraints, annotations=annotations)
        )
        wait_for_ready_pods(sandbox, NAMESPACE, name, replicas)
    sandbox.apply(_policy("DryRun"))


def _policy(mode: str) -> str:
    spec: dict[str, Any] = {"prevention": {"podDeletionCost": "Enabled"}, "limits": {"inFlight": 2}}
    return json.dumps(policy("default", mode=mode, quietPeriod="2s", **spec))


def _scale_down(sandbox: Sandbox) -> None:
    """Scale down repeatedly, because chance decides how many evictions prevention saves each time."""
    for _ in range(3):
        for share in (1.0, 0.5):
            for name, replicas in REPLICAS.items():
                scale(sandbox, NAMESPACE, name, round(replicas * share))
            for name, replicas in REPLICAS.items():
                wait_for_ready_pods(sandbox, NAMESPACE, name, round(replicas * share))
            time.sleep(PHASE_SECONDS / 3)


def _shown(prometheus: Prometheus, title: str) -> list[float]:
    return [float(each["value"][1]) for each in prometheus.panel(title)]


def _lines(prometheus: Prometheus, title: str, begun: float, ended: float) -> Iterator[Line]:
    for template, series in prometheus.panel_between(title, begun, ended):
        for each in series:
            legend = re.sub(r"{{(\w+)}}", lambda name, each=each: each["metric"].get(name[1], ""), template)  # type: ignore[misc]  # no types for defaults
            points = [(float(moment) - begun, float(value)) for moment, value in each["values"]]
            seconds, values = zip(*_corners(points), strict=True)
            yield Line(" ".join(legend.split()), seconds, values)


def _corners(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points without those between two of the same value."""
    around = zip(points[:1] + points[:-1], points, points[1:] + points[-1:], strict=True)
    inner = [here for before, here, after in around if not before[1] == here[1] == after[1]]
    return [*points[:1], *inner, *points[-1:]]


def _draw(place: Axes, title: str, lines: list[Line]) -> None:
    unit = PANELS[title].get("fieldConfig", {}).get("defaults", {}).get("unit", "")
    size = MIB if unit == "bytes" else 1
    for line in lines:
        values = [value / size for value in line.values]
        place.plot(line.seconds, values, label=line.legend or title, drawstyle="steps-post")
    named = {"s": "seconds", "bytes": "MiB", "reqps": "requests per second"}.get(unit, "")
    place.set_title(title, loc="left")
    place.set_ylabel(named)
    place.set_ylim(bottom=0)
    place.set_xlim(left=0)
    place.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{int(seconds) // 60}:{int(seconds) % 60:02}"))
    place.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 3, 6]))
    place.yaxis.set_major_locator(MaxNLocator(5, integer=unit == ""))
    if lines:
        place.legend(loc="upper left", bbox_to_anchor=(0, -0.12), ncols=1, borderaxespad=0)


if __name__ == "__main__":
    main()
