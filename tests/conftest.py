"""Fixtures of all tests, in particular real control planes with simulated nodes.

Booting one takes about 3 s, so a test can have a cluster of its own:

`sandbox`
    a complete one (12 nodes in 3 zones) for each module; each test uses its own `namespace`.
`start_sandbox`
    a function that starts one with given options, such as `start_sandbox(SandboxOptions(nodes_per_zone=(5, 3, 1)))`;
    stopped after the test.
`installed_sandbox`
    one for tests that need no options of their own. Before each test it is reset to its initial state: with Respread
    installed, an audit log and no nodes. That saves starting and installing, which take as long as many tests.
`api_sandbox`
    only etcd and kube-apiserver, for tests of decisions of the API server alone.

The files that a worker runs one after another share the last two, which are stopped before a file that does not need
them, because an idle control plane uses 3% of a CPU. For this reason, files that need the same one run together.

A test that uses any of them gets the mark `controlplane` automatically. Missing programs are built before the first
test runs if a selected test needs them, so that no test's time limit can interrupt the build.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import secrets
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from respread_sandbox import Binaries, Sandbox, SandboxError, SandboxOptions
from respread_sandbox.components import CONTROLLER_MANAGER, KWOK
from respread_sandbox.supervised import last_lines
from tests.integration.reused_sandbox import ReusedSandbox, start_reused_sandbox
from tests.properties.instances import factor
from tests.virtual_time import VirtualTimeLoop

# There is no time limit for the examples of a property, because a busy machine is no fault of the code.
settings.register_profile("respread", deadline=None, max_examples=100 if factor() > 1 else 50)
settings.load_profile("respread")

# Background jobs of a script ignore SIGINT, and programs that tests start and interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

SANDBOX_FIXTURES = {"sandbox", "start_sandbox", "reused_sandbox", "api_sandbox", "binaries"}
SHARED_FIXTURES = ("reused_sandbox", "api_sandbox")
"""The shared objects of a worker's files."""
FILE_ORDER = ("reused_sandbox", "long", "api_sandbox", "short")
LONG_SECONDS = 3.0
RUNNING = pytest.StashKey[dict[str, tuple[Any, ExitStack]]]()
"""The objects that are shared now and the functions that stop them, by fixture."""
NEEDED = pytest.StashKey[dict[Path, set[str]]]()
"""The fixtures that the tests of each file use."""
NO_BINARIES = pytest.StashKey[str]()
"""Why the programs could not be found or built, as a message for each test that needs them."""

T = TypeVar("T")

MOST_WORKERS = 12
WORKER_BYTES = 3 * 10**9 // 2
"""The memory of a worker with a control plane and an operator."""


@pytest.hookimpl(optionalhook=True)  # xdist's
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the workers for `-n auto`: four per CPU, because tests on a control plane mostly wait, and one more.

    That one runs tests that compute (see `mixed_files`). With little memory there are fewer, because each worker may
    have a control plane.
    """
    if config.option.numprocesses != "auto" or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(MOST_WORKERS, 4 * len(os.sched_getaffinity(0)) + 1, memory_bytes // WORKER_BYTES))


@pytest.hookimpl(optionalhook=True)  # xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return the scheduler of whole files if xdist distributes whole files; None leaves the choice to xdist."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.mixed_files import MixedFiles  # noqa: PLC0415 - tests run without xdist too

    return MixedFiles(config, log)


def pytest_collection() -> None:
    """Disable garbage collection while tests are imported, because imports leave almost no garbage."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)  # before -m selects by the mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SANDBOX_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.controlplane)
    seconds: dict[Path, float] = defaultdict(float)
    needed: dict[Path, set[str]] = defaultdict(set)
    for item in items:
        seconds[item.path] += about_seconds(item)
        needed[item.path].update(getattr(item, "fixturenames", ()))
    order = {path: order_of_file(needed[path], took) for path, took in seconds.items()}
    items.sort(key=lambda item: (order[item.path], -seconds[item.path], item.path))
    for item in items[:1]:
        item.config.stash[NEEDED] = needed


def order_of_file(fixtures: set[str], seconds: float) -> int:
    """Return the sort key of a file: files that share a control plane run together, and short files run last.

    There are many short files, so all workers end at about the same time.
    """
    if shared_by := [name for name in SHARED_FIXTURES if name in fixtures]:
        return FILE_ORDER.index(shared_by[0])
    return FILE_ORDER.index("long" if seconds >= LONG_SECONDS else "short")


@pytest.hookimpl(tryfirst=True)  # pytest itself can't
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function in an event loop of its own, in which waiting takes no time if it has that mark."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    loop_factory = VirtualTimeLoop if pyfuncitem.get_closest_marker("virtual_time") else None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(trylast=True)  # after the fixtures of the last test that used it
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the shared control planes that the next file does not need."""
    needed = set() if nextitem is None else item.config.stash[NEEDED][nextitem.path]
    running = item.config.stash.get(RUNNING, {})
    for name in running.keys() - needed:
        running.pop(name)[1].close()


def shared(config: pytest.Config, name: str, start: Callable[[ExitStack], T]) -> T:
    """Return the shared object of a fixture, and start it if it does not run."""
    running = config.stash.setdefault(RUNNING, {})
    if name not in running:
        with ExitStack() as stack:
            running[name] = start(stack), stack.pop_all()
            config.add_cleanup(running[name][1].close)  # if a failure or Ctrl-C ends the run
    value: T = running[name][0]
    return value


def about_seconds(item: pytest.Item) -> float:
    """Return about how long a test takes. The files that take longest run first."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if not item.get_closest_marker("controlplane"):
        return 1 if "properties" in item.path.parts else 0.05
    if "faults" in item.path.parts or fixtures & {"start_sandbox", "installed_sandbox", "reused_sandbox"}:
        return 15
    if "api_sandbox" in fixtures:
        return 0.3
    return 3 if "sandbox" in fixtures else 10  # a test without these fixtures starts control planes by other programs


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build missing programs now, in every process with tests that need them, and show the progress.

    Under xdist, one worker builds and the others wait for it. Standard error is that of the terminal.
    """
    gc.freeze()  # all imported objects stay, so later garbage collections can skip them
    gc.enable()
    needed = any(item.get_closest_marker("controlplane") for item in session.items)
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        if Binaries.find()[1]:
            with capture.global_and_fixture_disabled():
                sys.stderr.write("\n")
                Binaries.find_or_build()
    except SandboxError as error:
        session.config.stash[NO_BINARIES] = str(error)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the pods and what the components logged last for a test that fails while its control plane runs."""
    report = yield
    fixtures: dict[str, object] = getattr(item, "funcargs", {})
    sandbox = next((each for each in fixtures.values() if isinstance(each, Sandbox)), None)
    if report.when == "call" and report.failed and sandbox is not None:
        try:
            shown = sandbox.kubectl("get", "pods", "--all-namespaces", "--output=wide")
        except SandboxError as error:
            shown = str(error)
        report.sections.append(("pods", shown))
        for component in (KWOK, CONTROLLER_MANAGER):
            report.sections.append((component, last_lines(sandbox.log(component), 40)))
    return report


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Binaries:
    """The control plane's programs."""
    if NO_BINARIES in request.config.stash:
        pytest.fail(request.config.stash[NO_BINARIES], pytrace=False)
    return Binaries.find_or_build()


@pytest.fixture(scope="module")
def sandbox(binaries: Binaries) -> Iterator[Sandbox]:
    """A complete control plane for this module: 12 nodes in 3 zones."""
    with Sandbox.start(binaries=binaries) as running:
        yield running


@pytest.fixture
def namespace(sandbox: Sandbox, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new namespace in the module's sandbox. It is deleted after the test without waiting."""
    words = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:50].strip("-")
    name = sandbox.create_namespace(f"{words}-{secrets.token_hex(3)}")
    yield name
    sandbox.api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def start_sandbox(binaries: Binaries) -> Iterator[Callable[[SandboxOptions], Sandbox]]:
    """A function that starts control planes with given options; all are stopped after the test."""
    with ExitStack() as running:

        def start(options: SandboxOptions) -> Sandbox:
            own = None if options.kubernetes_version else binaries
            return running.enter_context(Sandbox.start(options, binaries=own))

        yield start


@pytest.fixture(scope="module")
def reused_sandbox(binaries: Binaries, pytestconfig: pytest.Config) -> ReusedSandbox:
    """The control plane of `installed_sandbox`."""
    options = SandboxOptions(nodes=0, audit=True)
    return shared(
        pytestconfig, "reused_sandbox", lambda stack: stack.enter_context(start_reused_sandbox(options, binaries))
    )


@pytest.fixture
def installed_sandbox(reused_sandbox: ReusedSandbox) -> Sandbox:
    """A complete control plane without nodes, with Respread installed and an audit log, in its initial state."""
    return reused_sandbox.reset()


@pytest.fixture(scope="module")
def api_sandbox(binaries: Binaries, pytestconfig: pytest.Config) -> Sandbox:
    """Only etcd and kube-apiserver, without nodes. Other files may have left objects."""
    options = SandboxOptions(nodes=0, scheduler=False, controller_manager=False, kwok=False)
    return shared(
        pytestconfig, "api_sandbox", lambda stack: stack.enter_context(Sandbox.start(options, binaries=binaries))
    )
