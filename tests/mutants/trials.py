"""Tries changes in forks of a process that has imported the fast tests, so that a caught one takes about a second."""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import ChainMap, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.machinery import SourceFileLoader
from itertools import accumulate
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest

from tests.mutants.change import Change

ROOT: Final = Path(__file__).parents[2]
CODE: Final = Path("operator", "respread")
FAST: Final = ("tests/unit", "tests/conformance", "tests/properties")
"""The tests without a control plane."""
NOT_A_CATCH: Final = "tests/unit/project"
"""It fails because of what files contain, or does not import the code."""
NOTES: Final = ROOT / "build" / "mutants.json"
"""How long each test takes and the functions that it enters, as `file::qualified name`."""
MOST_SECONDS: Final = 60
"""Of a test. A change may make it endless."""
MOST_SECONDS_OF_A_FORK: Final = 1200
NOTED_AT_ONCE: Final = 500
"""So many tests, so that on a busy machine no fork ends too late, and what is noted stays noted."""
MOST_BYTES: Final = 8 << 30
"""Of address space: a change may make a list endless."""
FIRST: Final = 40
"""So many tests run first: those that enter the fewest functions, which are mostly about the changed one."""

_FORKS: Final = multiprocessing.get_context("fork")

Notes = Mapping[str, tuple[float, Sequence[str], str]]
"""By test. The last is the digest of its file, of what all tests share, and of the files that it enters."""


class Trials:
    """Tries changes with the tests that may catch them."""

    def __init__(self, tests: Connection, most_seconds: float) -> None:
        """Create it with a connection to the process that has imported the tests; `trials` also starts that."""
        self._tests = tests
        self._names: list[str] = tests.recv()
        self._most_seconds = most_seconds
        self._notes: Notes = self._noted()

    def code(self, file: str) -> str:
        """Return the code of a file, relative to `operator/respread`, without a change."""
        return (ROOT / CODE / file).read_text(encoding="utf-8")

    def caught_by(self, change: Change) -> str:
        """Return a test that fails with a change, and fails again alone, but not without the change; or nothing."""
        code = self.code(change.file)
        file, text = str(ROOT / CODE / change.file), change.put_into(code)
        function = change.body(code)

        def failing(tests: Sequence[str]) -> str:
            found = self._ask(tests, (file, function, text)) if function else None
            return str(_in_fork(partial(_run_anew, tests, file, text)) if found is None else found)

        tests = self._tests_for(change, code)
        while tests and (test := failing(tests)):
            is_named = test in self._names
            if failing([test] if is_named else tests) and (not is_named or self._ask([test])):
                return test
            tests = tests[tests.index(test) + 1 :] if is_named else ()  # it may fail at times without any change
        return ""

    def _ask(self, tests: Sequence[str], change: tuple[str, str, str] | None = None) -> Any:
        self._tests.send((tests, change))
        return self._tests.recv()

    def _tests_for(self, change: Change, code: str) -> Sequence[str]:
        """Return the tests that enter the changed function, or its file if it is in none, in their order."""
        function = f"{change.file}::{change.function(code)}"
        is_meant = (lambda each: each.startswith(function)) if function.endswith("::") else function.__eq__
        # Of a constant, or a field with a default, few tests are those that tell of it. Tests of docs enter nothing.
        name = "" if change.body(code) else code.splitlines()[change.line(code) - 1].partition(":")[0].strip()
        files = set(map(_file, self._notes)) if name else set()
        telling = {file for file in files if name in (ROOT / file).read_text(encoding="utf-8")}
        entering = {
            test: noted
            for test, noted in self._notes.items()
            if any(map(is_meant, noted[1])) or (name.isupper() and _file(test) in telling)
        }
        order = sorted(
            entering, key=lambda test: (_file(test) not in telling, _is_property(test), len(entering[test][1]))
        )
        first = [test for test in order[:FIRST] if not _is_property(test)]
        others = sorted(set(order).difference(first), key=lambda test: entering[test][0] * len(entering[test][1]))
        until = accumulate(entering[test][0] for test in others)
        return first + [test for test, end in zip(others, until, strict=True) if end <= self._most_seconds]

    def _noted(self) -> Notes:
        """Return what each test enters, by an earlier run as far as its file and what it enters have not changed."""
        paths = [path for folder in ("operator", "tests") for path in (ROOT / folder).rglob("*.py")]
        digests = {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        shared = {
            name for name in digests if name.startswith("tests") and "/test_" not in name and "/mutants/" not in name
        }

        def digest_of(test: str, functions: Sequence[str]) -> str:
            entered = {str(CODE / each.partition("::")[0]) for each in functions}
            those = [digests.get(each) for each in sorted({_file(test), *shared, *entered})]
            return hashlib.sha256(repr(those).encode()).hexdigest()

        known: Notes = json.loads(NOTES.read_text(encoding="utf-8")) if NOTES.exists() else {}
        notes = {test: was for test in self._names if (was := known.get(test)) and was[2] == digest_of(test, was[1])}
        missing = [test for test in self._names if test not in notes]
        for at in range(0, len(missing), NOTED_AT_ONCE):
            print(f"Noting which functions {len(missing) - at} tests enter …", flush=True)
            for test, (seconds, functions) in self._ask(missing[at : at + NOTED_AT_ONCE]).items():
                notes[test] = seconds, functions, digest_of(test, functions)
            NOTES.parent.mkdir(exist_ok=True)
            NOTES.write_text(json.dumps(notes), encoding="utf-8")
        for test in set(self._names) - notes.keys():
            print(f"Fails without any change, and is left out: {test}")
        return notes


@contextmanager
def trials(most_seconds: float = 60) -> Iterator[Trials]:
    """Import the fast tests in a process of its own.

    `most_seconds` is for a change, as the tests took without any.
    """
    ours, its = _FORKS.Pipe()
    process = _FORKS.Process(target=_pytest, args=(FAST, _Tests(its)))
    process.start()
    its.close()
    yield Trials(ours, most_seconds)
    ours.send(None)
    process.join()


class _Failures:
    """A plugin of pytest that runs only some tests, if they are named, and knows which failed."""

    def __init__(self, only: Sequence[str] = ()) -> None:
        self.failed: list[str] = []
        self._only = only

    @pytest.hookimpl(trylast=True)  # after tests/conftest.py has put them in order
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._only:
            items[:] = [item for item in items if item.nodeid in self._only]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class _Tests(_Failures):
    """A plugin that runs, in forks, the tests that it is asked for."""

    def __init__(self, asked: Connection) -> None:
        super().__init__()
        self._asked = asked

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # or their functions are not found
        functions: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and str(CODE) in each.__code__.co_filename:
                functions[each.__code__.co_filename, each.__code__.co_qualname].append(each)
        gc.freeze()
        self._asked.send(list(items))
        while (asked := self._asked.recv()) is not None:
            chosen = [items[test] for test in asked[0]]
            if asked[1] is None:
                self._asked.send(self._note_at_once(chosen))
                continue
            file, name, text = asked[1]
            old = sorted(functions[file, name], key=lambda function: function.__code__.co_firstlineno)
            new = [code for code in _codes(compile(text, file, "exec")) if code.co_qualname == name]
            can = [each.__code__.co_freevars for each in old] == [code.co_freevars for code in new] != []
            self._asked.send(_in_fork(partial(self._first_failure, chosen, old, new)) if can else None)
        return True

    def _first_failure(self, items: Sequence[pytest.Item], old: Sequence[FunctionType], new: Sequence[CodeType]) -> str:
        for function, code in zip(old, new, strict=True):
            function.__code__ = code
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return item.nodeid
        return ""

    def _note_at_once(self, items: Sequence[pytest.Item]) -> dict[str, tuple[float, Sequence[str]]]:
        files = list(dict.fromkeys(item.path for item in items))
        number = min(len(files), os.cpu_count() or 1)
        parts = [[item for item in items if item.path in files[at::number]] for at in range(number)]
        with ThreadPoolExecutor() as pool:
            return dict(ChainMap(*pool.map(_in_fork, [partial(self._note, part) for part in parts])))

    def _note(self, items: Sequence[pytest.Item]) -> dict[str, tuple[float, Sequence[str]]]:
        """Return what each test enters that does not fail."""
        noted = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            began = time.process_time()  # on a busy machine, no fewer tests run
            test = partial(item.config.hook.pytest_runtest_protocol, item=item, nextitem=following)
            ours = [code for code in _entered(test) if str(CODE) in code.co_filename]
            names = {f"{code.co_filename.partition(f'{CODE}/')[2]}::{code.co_qualname}" for code in ours}
            noted[item.nodeid] = time.process_time() - began, sorted(names)
        return {test: what for test, what in noted.items() if test not in self.failed}


def _entered(run: Callable[[], object]) -> Collection[CodeType]:
    """Run something, and return the code that it enters."""
    entered: dict[int, CodeType] = {}  # by identity, because comparing code takes long
    if sys.version_info >= (3, 12):  # which takes a fourth of the time
        watch = sys.monitoring

        def note(code: CodeType, _offset: int) -> object:
            entered[id(code)] = code
            return watch.DISABLE

        watch.use_tool_id(watch.PROFILER_ID, __name__)
        for event in (watch.events.PY_START, watch.events.PY_RESUME):
            watch.register_callback(watch.PROFILER_ID, event, note)
        watch.set_events(watch.PROFILER_ID, watch.events.PY_START | watch.events.PY_RESUME)
        watch.restart_events()
        run()
        watch.set_events(watch.PROFILER_ID, watch.events.NO_EVENTS)
        watch.free_tool_id(watch.PROFILER_ID)
    else:

        def enter(frame: FrameType, _event: str, _argument: object) -> None:
            entered.setdefault(id(frame.f_code), frame.f_code)

        threading.settrace(enter)
        sys.settrace(enter)
        run()
        sys.settrace(None)
        threading.settrace(None)
    return entered.values()


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _in_fork(do: Callable[[], object]) -> Any:
    """Return what a function returns in a fork, or that it did not."""
    receiver, sender = _FORKS.Pipe(duplex=False)

    def run() -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in range(3):
            os.dup2(nowhere, each)
        sender.send(do())

    process = _FORKS.Process(target=run)
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(MOST_SECONDS_OF_A_FORK) else "it ends too late"
    except EOFError:
        return "it ends the process"
    finally:
        os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()


def _run_anew(tests: Sequence[str], file: str, text: str) -> str:
    """Import everything with a change, and return the first failure of tests."""
    imported = SourceFileLoader.get_code

    def changed(loader: SourceFileLoader, name: str) -> CodeType | None:
        return compile(text, file, "exec") if loader.path == file else imported(loader, name)

    pytest.MonkeyPatch().setattr(SourceFileLoader, "get_code", changed)
    plugin = _Failures(tests)
    code = _pytest(list(dict.fromkeys(map(_file, tests))), plugin)
    return next(iter(plugin.failed), f"pytest ended with {code}" if code else "")


def _pytest(tests: Sequence[str], plugin: object) -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder  # or every later run would try what has failed here
        options = ("-qsx", "-n0", "-pno:cacheprovider", f"--timeout={MOST_SECONDS}", f"--basetemp={folder}/tests")
        chosen = ("-mnot controlplane and not long", f"--ignore={NOT_A_CATCH}", *tests)
        return pytest.main([*options, *chosen], [plugin])


def _file(test: str) -> str:
    return test.partition("::")[0]


def _is_property(test: str) -> bool:
    return test.startswith("tests/properties")
