"""A family of cases, judged one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.conformance.cases import QUANTITIES, Case, QuantityRow, lines_of
from tests.conformance.judging import Difference, Judgement, judge, judge_quantity


class FamilyResult(NamedTuple):
    """How the cases of a family came out."""

    cases: int
    failed_cases: int
    verdicts: int
    wrong_verdicts: int
    differences: tuple[Difference, ...]


def run_family(name: str, path: Path) -> FamilyResult:
    """Judge all cases of a family's file. A line that can't be read is a case that failed."""
    cases = failed = verdicts = wrong = 0
    differences: list[Difference] = []
    for judgement in _judgements(name, path):
        cases += 1
        failed += bool(judgement.differences)
        verdicts += judgement.verdicts
        wrong += judgement.wrong_verdicts
        differences.extend(judgement.differences)
    return FamilyResult(cases, failed, verdicts, wrong, tuple(differences))


def _judgements(name: str, path: Path) -> Iterator[Judgement]:
    read_case = msgspec.json.Decoder(Case).decode
    read_row = msgspec.json.Decoder(QuantityRow).decode
    for number, line in enumerate(lines_of(path), start=1):
        at = f"{path.name}:{number}"
        try:
            yield judge_quantity(read_row(line)) if name.startswith(QUANTITIES) else judge(read_case(line))
        except msgspec.DecodeError as error:
            yield Judgement(0, 0, (Difference(at, "", "reading", "a case", str(error)),))
        except Exception as error:  # noqa: BLE001 - a crash is a difference too, and the other cases are still judged
            yield Judgement(0, 0, (Difference(at, "", "judging", "an answer", f"{type(error).__name__}: {error}"),))
