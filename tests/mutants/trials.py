"""Tries changes in a copy of the code, with the tests that enter the changed function."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.change import Change

ROOT: Final = Path(__file__).parents[2]
CODE: Final = Path("operator", "respread")
FAST: Final = ("tests/unit", "tests/conformance", "tests/properties")
"""The tests without a control plane."""
NOT_SLOW: Final = ("-m", "not controlplane and not long")
NOT_A_CATCH: Final = "tests/unit/project/test_mutants.py"
"""It fails with every change, because none can be put in twice."""
NOTES: Final = ROOT / "build" / "mutants.json"
"""What the tests enter, until they or the code change."""
MOST_SECONDS: Final = 60
"""Of a test. A change may make it endless."""
FIRST: Final = 40
"""So many tests run first: those that enter the fewest functions, which are mostly about the changed one."""


class Noted(NamedTuple):
    """What a test did without any change."""

    test: str
    seconds: float
    functions: frozenset[str]
    """As `file::qualified name`."""

    @property
    def file(self) -> str:
        """The file of the test."""
        return self.test.partition("::")[0]

    @property
    def is_property(self) -> bool:
        """Whether it takes longer, because it tries many clusters."""
        return self.test.startswith("tests/properties")


class Selection(NamedTuple):
    """Tests to run."""

    arguments: Sequence[str]
    """Of pytest."""
    chosen: Sequence[str] = ()
    """Their names, in the order to run them in. Empty: all that the arguments select."""

    @classmethod
    def of(cls, noted: Sequence[Noted]) -> Selection:
        """Return some fast tests in their order."""
        names = [each.test for each in noted]
        return cls(sorted({each.file for each in noted}), names)


class Trials:
    """A copy of the code, and the tests that may catch a change of it."""

    def __init__(self, copy: Path, noted: Sequence[Noted], always: Sequence[str], most_seconds: float) -> None:
        """Create it; `trials` also makes the copy.

        Args:
            copy: the files under version control.
            noted: what each fast test enters.
            always: tests to run for every change instead.
            most_seconds: for a change, as the tests took without any.
        """
        self._copy = copy
        self._most_seconds = most_seconds
        self._noted = noted
        self._always = always

    def code(self, file: str) -> str:
        """Return the code of a file, relative to `operator/respread`, without a change."""
        return (self._copy / CODE / file).read_text(encoding="utf-8")

    def _text(self, test_file: str) -> str:
        return (self._copy / test_file).read_text(encoding="utf-8")

    def caught_by(self, change: Change, *, with_control_plane: bool = False) -> str:
        """Return a test that fails with a change, and fails again alone; empty if there is none."""
        code, file = self.code(change.file), self._copy / CODE / change.file
        selections = list(self._selections(change, code))
        if with_control_plane:
            folders = map(str, self._copy.glob(f"tests/*/{change.file.partition('/')[0]}"))
            selections += [Selection(["-m", "not long", *folders]), Selection(["-m", "not long", "tests"])]
        file.write_text(change.put_into(code), encoding="utf-8")
        try:
            found = (test for selection in selections if (test := _first_failure(self._copy, selection)))
            return next((test for test in found if _first_failure(self._copy, Selection([test]))), "")
        finally:
            file.write_text(code, encoding="utf-8")

    def _selections(self, change: Change, code: str) -> Iterator[Selection]:
        """Yield the fast tests that enter the changed function.

        For a change outside of one, those whose files name the constant, and any that enter its file.
        """
        if self._always:
            yield Selection(self._always)
            return
        function = f"{change.file}::{change.function(code)}"
        entering = [each for each in self._noted if function in each.functions]
        if function.endswith("::"):
            entering = [each for each in self._noted if any(name.startswith(function) for name in each.functions)]
            constant = code.splitlines()[change.line(code) - 1].partition(":")[0]
            naming = {file for file in {each.file for each in self._noted} if constant in self._text(file)}
            if constant.isidentifier() and naming:
                yield Selection.of([each for each in self._noted if each.file in naming])
        if not entering:
            yield Selection([*NOT_SLOW, f"tests/unit/{change.file.partition('/')[0]}"])
            return
        entering.sort(key=lambda each: (each.is_property, len(each.functions)))
        first = [each for each in entering[:FIRST] if not each.is_property]
        others = sorted(entering[len(first) :], key=lambda each: (each.is_property, each.seconds))
        seconds = accumulate(each.seconds for each in others)
        others = [each for each, until in zip(others, seconds, strict=True) if until <= self._most_seconds]
        for noted in (first, others):
            if noted:
                yield Selection.of(noted)


@contextmanager
def trials(always: Sequence[str] = (), most_seconds: float = 120) -> Iterator[Trials]:
    """Copy the files under version control, and note what the fast tests enter.

    Args:
        always: tests to run for every change instead, as arguments of pytest.
        most_seconds: for a change, as the tests took without any.
    """
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    contents: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="respread-mutants-") as directory:
        copy = Path(directory)
        for name in names:
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
                contents[name] = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        subprocess.run(["git", "init", "--quiet", "."], cwd=copy, check=True)
        # By times, Python would take a file that changes twice within a second for the one before.
        by_content = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "operator"]
        subprocess.run([sys.executable, *by_content], cwd=copy, check=True)
        yield Trials(copy, [] if always else _noted(copy, contents), always, most_seconds)


def _noted(copy: Path, contents: Mapping[str, str]) -> list[Noted]:
    """Return what each fast test enters, by the last run as far as nothing has changed since.

    Args:
        copy: the copy of the code.
        contents: the digest of each of its files.
    """
    files = {name: digest for name, digest in contents.items() if name.startswith(FAST) and "/test_" in name}
    others = sorted(
        (name, digest)
        for name, digest in contents.items() - files.items()
        if name.endswith(".py") and name.startswith(("operator/", "tests/")) and not name.startswith("tests/mutants/")
    )
    code = hashlib.sha256(json.dumps(others).encode()).hexdigest()
    known = json.loads(NOTES.read_text(encoding="utf-8")) if NOTES.exists() else {}
    if known.get("code") != code:
        known = {"files": {}, "failed": [], "by_test": {}}
    same = files.items() & known["files"].items()
    if changed := sorted(files.keys() - dict(same).keys()):
        print(f"Noting which functions the tests of {len(changed)} files enter …", flush=True)
        with tempfile.NamedTemporaryFile(suffix=".json") as notes:
            done = _pytest(
                copy, [*NOT_SLOW, *(FAST if len(changed) == len(files) else changed)], RESPREAD_MUTANTS_NOTES=notes.name
            )
            if done.returncode not in {0, 1, 5}:
                raise ChildProcessError(f"the fast tests ended with {done.returncode}: {done.stdout[-2000:]}")
            new = json.loads(notes.read())
        kept = {test: noted for test, noted in known["by_test"].items() if test.partition("::")[0] in dict(same)}
        failed = [test for test in known["failed"] if test.partition("::")[0] in dict(same)]
        known = {"code": code, "files": files, "failed": failed + new["failed"], "by_test": kept | new["by_test"]}
        NOTES.parent.mkdir(exist_ok=True)
        NOTES.write_text(json.dumps(known), encoding="utf-8")
    if known["failed"]:
        print(f"These fail without any fault, and are left out: {', '.join(known['failed'])}")
    return [Noted(test, seconds, frozenset(names)) for test, (seconds, names) in known["by_test"].items()]


def _first_failure(copy: Path, selection: Selection) -> str:
    """Run tests until one fails, and return its name."""
    options = ["-x", "--tb=no", f"--timeout={MOST_SECONDS}"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as chosen:
        json.dump(selection.chosen, chosen)
        chosen.flush()
        named = {"RESPREAD_MUTANTS_TESTS": chosen.name} if selection.chosen else {}
        done = _pytest(copy, [*options, *selection.arguments], **named)
    if done.returncode in {0, 5}:  # all passed, or there are none
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return found[1] if found else f"pytest ended with {done.returncode}: {done.stderr[-300:]}"


def _pytest(copy: Path, arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, f"--ignore={NOT_A_CATCH}", *arguments],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy / "operator"), **environment},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
