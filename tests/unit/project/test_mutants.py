"""The faults of `make mutants` can be put into the code as it is now."""

from __future__ import annotations

import ast

import pytest

from tests.mutants import CODE, FAULTS, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}: {fault.name}")
def test_a_fault_can_be_put_in(fault: Fault) -> None:
    """Otherwise `make mutants`, which takes an hour and is run rarely, would try fewer faults than it lists."""
    code = (ROOT / CODE / fault.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(fault.put_into(code))) != ast.dump(ast.parse(code))


def test_no_two_faults_share_a_name() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
