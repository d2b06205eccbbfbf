"""bench/ui: how soon a browser shows a large cluster, and whether it stays smooth while the cluster changes.

    python -m bench.ui [--pods 150000] [--nodes 5000] [--replicas 18] [--rate 2000] [--seconds 15]

`respread ui` follows an API server in memory (bench/served.py), and Chromium opens the page. The bench measures the
time until the first picture, the time from each input to the frame with its effect, the frames while pods change, and
memory. The API server, `respread ui` and the browser share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from bench.latency_world import World
from bench.rows import Row, check, measured, parser_for, print_rows
from bench.served import write_kubeconfig
from bench.sides import cost_of, processes_of
from bench.ui_what_if import Asked, ask_what_if, rows_of
from tests.chromium import Tab, browser, find_chromium

TICK_SECONDS: Final = 0.01
VIOLATED: Final = 100
"""The number of constraints that are violated from the start."""
SYNC_SECONDS: Final = 120.0
REPETITIONS: Final = 8
FRESH: Final = 5
"""The number of measurements from a change until the page shows it."""
PAUSE_SECONDS: Final = 0.3
ROW_PIXELS: Final = 48
ROWS_ABOVE: Final = 1_000
"""The number of rows above the visible ones while frames are counted."""

AT_ONCE: Final = 500
"""The number of Deployments that lack a pod at the same time, long enough for the page to show it."""

FIRST_PICTURE_SECONDS: Final = 3.0
INTERACTION_MILLISECONDS: Final = 100.0
FRESH_SECONDS: Final = 1.0
BROWSER_MEBIBYTES: Final = 200.0
FRAMES_PER_SECOND: Final = 30.0

SCRIPT: Final = """
window.bench = {
  painted: () => new Promise((resolve) => requestAnimationFrame(() => {
    const channel = new MessageChannel();  // Its message comes after the frame.
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(0);
  })),
  async until(condition) { while (!condition()) await bench.painted(); },
  async timed(act, condition) {
    const begun = performance.now();
    act();
    if (condition) await bench.until(condition);
    await bench.painted();
    return performance.now() - begun;
  },
  watch() {
    const watched = bench.watched = { frames: [], drawings: 0 };
    const seen = (time) => {
      if (bench.watched !== watched) return;
      watched.frames.push(time);
      requestAnimationFrame(seen);
    };
    requestAnimationFrame(seen);
    const course = document.querySelector(".course");  // Only the cluster view has it.
    const drawn = new MutationObserver(() => { watched.drawings += 1; });
    if (course) drawn.observe(course, { childList: true, subtree: true });
  },
  watchedUntilNow() {
    const watched = bench.watched;
    bench.watched = null;
    return watched;
  },
  set(id, value) {
    const input = document.getElementById(id);
    input.value = value;
    input.dispatchEvent(new Event("input"));
    input.dispatchEvent(new Event("change"));
  },
};
new MutationObserver((_, observer) => {
  if (!document.querySelector(".rows .group")) return;
  observer.disconnect();
  bench.painted().then(() => { bench.firstPicture = performance.now(); });
}).observe(document, { childList: true, subtree: true });
"""

INTERACTIONS: Final = {
    "a letter of a search": ("bench.set('search', {n} % 2 ? 'app-{n}' : 'app-1{n}')", None),
    "a filter by state": ("document.getElementById('state-Violated').click()", None),
    "a filter by namespace": ("bench.set('namespace', {n} % 2 ? 'busy-1' : '')", None),
    "a jump of 100 rows": ("scrollBy(0, {n} % 4 < 2 ? 4800 : -4800)", None),
    "a workload, first answer": (
        "location.hash = {n} % 2 ? '#/workload/busy-{n}/deploy%2Fapp-{n}' : '#/'",
        "document.querySelector({n} % 2 ? '.loading, .verdict' : '.rows .group')",
    ),
}
"""The inputs, and the condition for the effect if it is not immediate. {n} is a counter."""
COMPLETE_WORKLOAD: Final = (
    "location.hash = '#/workload/busy-{n}/deploy%2Fapp-{n}'",
    "document.querySelector('.stage')",
)


class Memory(NamedTuple):
    """The memory of the page's process."""

    heap_mib: float
    """The JavaScript heap after a garbage collection."""
    resident_mib: float
    """All memory, including the browser's program, most of which is shared with other processes."""
    private_mib: float


class Look:
    """A user of the page."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab

    async def first_picture(self, url: str) -> float:
        """Open the page, and return the seconds until it shows constraints."""
        await self.tab.send("Page.addScriptToEvaluateOnNewDocument", source=SCRIPT)
        await self.tab.open(url)
        return float(await self.tab.wait_for("window.bench?.firstPicture")) / 1000

    async def interactions(self) -> dict[str, list[float]]:
        """Make each input, and return the milliseconds until its effect was visible."""
        await self.home()
        taken: dict[str, list[float]] = {}
        for what, (act, condition) in INTERACTIONS.items():
            taken[what] = []
            for number in range(1, REPETITIONS + 1):
                taken[what].append(await self._timed(act, condition, number))
                await asyncio.sleep(PAUSE_SECONDS)
            await self.home()
            await self.tab.run("bench.set('search', ''); bench.set('namespace', '')")
        return taken

    async def workload(self) -> list[float]:
        """Open workloads, and return the milliseconds until each was shown completely."""
        taken = []
        for number in range(1, REPETITIONS + 1):
            await self.home()
            taken.append(await self._timed(*COMPLETE_WORKLOAD, number))
        await self.home()
        return taken

    async def home(self) -> None:
        """Show the cluster view from its top."""
        await self.tab.run("location.hash = '#/'; scrollTo(0, 0)")
        await self.tab.wait_for("document.querySelector('.rows .group')")

    async def _timed(self, act: str, condition: str | None, number: int) -> float:
        script = f"bench.timed(() => {{ {act} }}, {f'() => {condition}' if condition else 'null'})"
        return float(await self.tab.run(script.replace("{n}", str(number))))

    async def shown(self, violated: int) -> None:
        """Wait until the page shows this number of violated constraints."""
        await self.tab.run(f"bench.until(() => document.querySelector('h1').textContent.includes('✗ {violated} of'))")

    async def memory(self) -> Memory:
        """Return the memory of the page's process."""
        await self.tab.send("HeapProfiler.collectGarbage")
        await self.tab.send("Performance.enable")
        metrics = (await self.tab.send("Performance.getMetrics"))["metrics"]
        heap = next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize")
        page = self.process()
        private = _status(page, "smaps_rollup", "Private_Clean:", "Private_Dirty:")
        return Memory(heap / 2**20, _status(page, "status", "VmRSS:"), private)

    def process(self) -> int:
        """Return the page's process, which is the largest renderer."""
        renderers = [each for each in processes_of(self.tab.browser_process) if b"--type=renderer" in _command(each)]
        return max(renderers, key=lambda each: _status(each, "status", "VmRSS:"))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _status(pid: int, file: str, *names: str) -> float:
    lines = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith(names))


@asynccontextmanager
async def _page_server(server: str) -> AsyncIterator[tuple[str, int, float]]:
    """Run `respread ui`; yield its URL, process and the seconds until it had read the cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-ui-") as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        write_kubeconfig(kubeconfig, server)
        begun = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "respread_cli.main", "ui", "--no-open", "--kubeconfig", str(kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                said = (await _first_line(process)).split()
            check(said[:1] == ["Serving"], "respread ui did not start")
            yield said[1], process.pid, time.monotonic() - begun
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _first_line(process: asyncio.subprocess.Process) -> str:
    return "" if process.stdout is None else (await process.stdout.readline()).decode()


def _changes(world: World) -> Iterator[None]:
    """Make a change for each step: alternately the readiness of a pod, and a replacement on another node."""
    spread = range(VIOLATED + FRESH, world.apps)
    readiness, half = world.changes(spread[::2]), spread[1::2]
    while True:
        for _ in world.replacements(half, at_once=AT_ONCE):
            yield
            next(readiness)
            yield


async def _change(changes: Iterator[None], rate: float, late: list[float]) -> None:
    """Change pods until cancelled."""
    start, events = time.monotonic(), 0
    while True:
        due = (time.monotonic() - start) * rate
        late.append((due - events) / rate)
        while events < due:
            next(changes)
            events += 1
        await asyncio.sleep(TICK_SECONDS)


class Seen(NamedTuple):
    """The measured values."""

    read_seconds: float
    first_picture_seconds: float
    at_rest: dict[str, list[float]]
    complete: list[float]
    fresh_seconds: list[float]
    asked: Asked
    resting: Memory
    frames: list[float]
    """The start time of each frame while pods changed, in milliseconds."""
    drawings_per_second: float
    in_burst: dict[str, list[float]]
    frames_in_use: list[float]
    after: Memory
    late_seconds: list[float]
    cpu_cores: float
    page_cpu_cores: float


async def measure(options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    """Run the bench, and return the result."""
    program = find_chromium()
    if program is None:
        raise SystemExit("no Chromium is installed: `make browser` installs Debian's, as root")
    world = World(
        pods=options.pods, namespaces=options.namespaces, seed=1, replicas=options.replicas, nodes=options.nodes
    )
    say(f"making {options.pods:,} pods of {world.apps:,} Deployments …")
    world.fill()
    for app in range(VIOLATED):
        world.violate(app)
    async with world.server.running() as server, browser(program) as tab:
        await tab.size(1440, 900)
        async with _page_server(server) as (url, pid, read_seconds):
            say(f"the cluster is read after {read_seconds:.1f} s; respread ui is process {pid}")
            seen = await _look(Look(tab), url, pid, read_seconds, world, options, say)
            check(tab.problems == [], f"the page has problems: {tab.problems}")
    return _rows(world, options, seen)


async def _look(
    look: Look,
    url: str,
    pid: int,
    read_seconds: float,
    world: World,
    options: argparse.Namespace,
    say: Callable[[str], None],
) -> Seen:
    first = await look.first_picture(url)
    await look.shown(VIOLATED)
    say(f"first picture after {first:.2f} s")
    at_rest, complete = await look.interactions(), await look.workload()
    resting = await look.memory()
    say(f"at rest: {json.dumps({what: round(max(each)) for what, each in at_rest.items()})}, {max(complete):.0f}")
    fresh = [await _fresh(look, world, VIOLATED + number) for number in range(FRESH)]
    say(f"a change is shown after {max(fresh):.2f} s at most; now simulations are run …")
    asked = await ask_what_if(look.tab, pid)
    scaled, drained = max(asked.scale_seconds), max(asked.drain_seconds)
    say(f"a workload scaled after {scaled:.2f} s, a node drained after {drained:.2f} s; now pods change …")
    await look.home()
    late: list[float] = []
    changing = asyncio.create_task(_change(_changes(world), options.rate, late))
    await asyncio.sleep(2)
    page = look.process()
    before, page_before, begun = cost_of(pid).cpu_seconds, cost_of(page).cpu_seconds, time.monotonic()
    await look.tab.run(f"scrollTo(0, {ROW_PIXELS * ROWS_ABOVE})")  # to rows that change
    await look.tab.run("bench.watch()")
    await asyncio.sleep(options.seconds)
    watched = await look.tab.run("bench.watchedUntilNow()")
    seconds = time.monotonic() - begun
    cores = (cost_of(pid).cpu_seconds - before) / seconds
    page_cores = (cost_of(page).cpu_seconds - page_before) / seconds
    say("and the page is used …")
    await look.tab.run("bench.watch()")
    in_burst = await look.interactions()
    in_use = await look.tab.run("bench.watchedUntilNow()")
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)
    return Seen(
        read_seconds=read_seconds,
        first_picture_seconds=first,
        at_rest=at_rest,
        complete=complete,
        fresh_seconds=fresh,
        asked=asked,
        resting=resting,
        frames=watched["frames"],
        drawings_per_second=watched["drawings"] / options.seconds,
        in_burst=in_burst,
        frames_in_use=in_use["frames"],
        after=await look.memory(),
        late_seconds=late,
        cpu_cores=cores,
        page_cpu_cores=page_cores,
    )


async def _fresh(look: Look, world: World, app: int) -> float:
    """Violate a constraint, and return the seconds until the page shows it."""
    begun = time.monotonic()
    world.violate(app)
    await look.shown(app + 1)
    return time.monotonic() - begun


def _rows(world: World, options: argparse.Namespace, seen: Seen) -> list[Row]:
    interactions = [
        Row(f"{when}: {what}, slowest of {REPETITIONS}", max(each), "ms", INTERACTION_MILLISECONDS)
        for when, taken in (("at rest", seen.at_rest), ("in bursts", seen.in_burst))
        for what, each in taken.items()
    ]
    return [
        Row("pods", options.pods, ""),
        Row("constraints", world.apps, ""),
        Row("cluster read after", seen.read_seconds, "s"),
        Row("first picture, from then on", seen.first_picture_seconds, "s", FIRST_PICTURE_SECONDS),
        *interactions,
        Row("at rest: everything of a workload, slowest", max(seen.complete), "ms"),
        Row("at rest: a change is shown, slowest", max(seen.fresh_seconds), "s", FRESH_SECONDS),
        *rows_of(seen.asked, _worst_second(seen.asked.watched["frames"]), _longest(seen.asked.watched["frames"])),
        Row("JavaScript's heap at rest", seen.resting.heap_mib, "MiB"),
        Row("the page's process at rest, private", seen.resting.private_mib, "MiB", BROWSER_MEBIBYTES),
        Row("JavaScript's heap after bursts", seen.after.heap_mib, "MiB"),
        Row("the page's process after bursts, private", seen.after.private_mib, "MiB", BROWSER_MEBIBYTES),
        Row("  with the browser's own program", seen.after.resident_mib, "MiB"),
        Row(
            "in bursts: frames in the worst second", _worst_second(seen.frames), "/s", FRAMES_PER_SECOND, at_most=False
        ),
        Row("in bursts: drawings of what has changed", seen.drawings_per_second, "/s"),
        Row("in bursts: longest frame", _longest(seen.frames), "ms"),
        Row("in use: frames in the worst second", _worst_second(seen.frames_in_use), "/s"),
        Row("  the bench's own lateness, longest", max(seen.late_seconds), "s"),
        Row("CPU of respread ui in bursts", seen.cpu_cores, "cores"),
        Row("CPU of the page's process in bursts", seen.page_cpu_cores, "cores"),
    ]


def _worst_second(frames: Sequence[float]) -> float:
    """Return the fewest frames that began in any second."""
    fewest, last = float("inf"), 0
    for first, begun in enumerate(frames):
        if begun + 1000 > frames[-1]:
            break
        while frames[last] < begun + 1000:
            last += 1
        fewest = min(fewest, last - first)
    return fewest


def _longest(frames: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(frames)), default=0.0)


def main() -> None:
    """Measure, and print a table with targets."""
    parser = parser_for(__doc__)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--replicas", type=int, default=18, help="of each Deployment, divisible by 3")
    parser.add_argument("--namespaces", type=int, default=40)
    parser.add_argument("--rate", type=float, default=2_000, help="how many pods change each second")
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    print_rows("bench/ui, Chromium", measured(partial(measure, options)))


if __name__ == "__main__":
    main()
