"""Judges a family of cases one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from respread.scheduling.configuration import keeps_namespace_selectors
from tests.conformance.cases import QUANTITIES, Case, QuantityRow, UnreadableFileError, lines_of
from tests.conformance.judging import Difference, Judgement, judge, judge_quantity

DATA_VERSION = "v1.36.3"
"""The version of the scheduler that recorded `data/`, except its folders for other versions."""


class FamilyResult(NamedTuple):
    """The result of the cases of a family."""

    cases: int
    failed_cases: int
    verdicts: int
    wrong_verdicts: int
    differences: tuple[Difference, ...]


def run_family(name: str, path: Path, version: str = DATA_VERSION) -> FamilyResult:
    """Judge all cases of a family's file. A line that can't be read is a failed case, and so is a file without cases.

    Args:
        name: the name of the family.
        path: its file.
        version: the version of the scheduler that recorded the cases, such as `v1.36.3`.
    """
    quirk = bool(keeps_namespace_selectors(version))
    cases = failed = verdicts = wrong = 0
    differences: list[Difference] = []
    for judgement in _judgements(name, path, keeps_selectors=quirk):
        cases += 1
        failed += bool(judgement.differences)
        verdicts += judgement.verdicts
        wrong += judgement.wrong_verdicts
        differences.extend(judgement.differences)
    return FamilyResult(cases, failed, verdicts, wrong, tuple(differences))


def _judgements(name: str, path: Path, *, keeps_selectors: bool) -> Iterator[Judgement]:
    number = 0
    try:
        for number, line in enumerate(lines_of(path), start=1):
            yield _judgement(name, f"{path.name}:{number}", line, keeps_selectors=keeps_selectors)
    except UnreadableFileError as error:
        yield _failed(path.name, "reading", "more cases", str(error))
    else:
        if not number:
            yield _failed(path.name, "reading", "cases", "an empty file")


def _judgement(name: str, at: str, line: bytes, *, keeps_selectors: bool) -> Judgement:
    try:
        if name.startswith(QUANTITIES):
            return judge_quantity(msgspec.json.decode(line, type=QuantityRow))
        return judge(msgspec.json.decode(line, type=Case), keeps_namespace_selectors=keeps_selectors)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _failed(at, "reading", "a case", str(error))
    except Exception as error:  # noqa: BLE001 - a crash is a difference too, and the other cases are still judged
        return _failed(at, "judging", "an answer", f"{type(error).__name__}: {error}")


def _failed(at: str, what: str, expected: str, got: str) -> Judgement:
    return Judgement(0, 0, (Difference(at, "", what, expected, got),))
