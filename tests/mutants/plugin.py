"""A pytest plugin: notes which functions each test enters, or runs chosen tests in a given order.

    pytest -p tests.mutants.plugin

`RESPREAD_MUTANTS_NOTES` names a file to write the notes into, `RESPREAD_MUTANTS_TESTS` one with the tests to run.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import pytest

CODE: Final = f"{Path('operator', 'respread')}{os.sep}"
MOST_BYTES: Final = 8 << 30
"""Of address space: a fault may make a loop endless."""


class Chosen:
    """Runs chosen tests only."""

    def __init__(self, file: Path) -> None:
        self._order = {name: at for at, name in enumerate(json.loads(file.read_text(encoding="utf-8")))}

    @pytest.hookimpl(trylast=True)  # after tests/conftest.py has put them in order
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = (item for item in items if item.nodeid in self._order)
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])


class Notes:
    """Notes the functions that each test enters."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entered: dict[int, CodeType] = {}
        """By identity, because comparing code takes long."""
        self._by_test: dict[str, tuple[float, list[str]]] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        entered, started = self._entered, time.perf_counter()
        entered.clear()

        def enter(frame: FrameType, _event: str, _argument: object) -> None:
            code = frame.f_code
            if id(code) not in entered:
                entered[id(code)] = code

        threading.settrace(enter)
        sys.settrace(enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            names = {
                f"{each.co_filename.partition(CODE)[2]}::{each.co_qualname}"
                for each in entered.values()
                if CODE in each.co_filename
            }
            self._by_test[item.nodeid] = time.perf_counter() - started, sorted(names)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write them. What fails without any fault can't catch one."""
        by_test = {test: noted for test, noted in self._by_test.items() if test not in self._failed}
        self._file.write_text(json.dumps({"failed": sorted(self._failed), "by_test": by_test}), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Take part in a run of the tests with a fault, or in the one before without any."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    if chosen := os.environ.get("RESPREAD_MUTANTS_TESTS"):
        config.pluginmanager.register(Chosen(Path(chosen)))
    if notes := os.environ.get("RESPREAD_MUTANTS_NOTES"):
        config.pluginmanager.register(Notes(Path(notes)))
