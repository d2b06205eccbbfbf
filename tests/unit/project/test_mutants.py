"""The faults of `make mutants` can be put into the code as it is now, and others are drawn from its operators."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import FAULTS, Fault
from tests.mutants.operators import changes_of, drawn
from tests.mutants.trials import CODE, ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}: {fault.name}")
def test_a_fault_can_be_put_in(fault: Fault) -> None:
    """Otherwise `make mutants`, which takes long and is run rarely, would try fewer faults than it lists."""
    code = (ROOT / CODE / fault.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(fault.change(code).put_into(code))) != ast.dump(ast.parse(code))


def test_no_two_faults_share_a_name() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)


def test_drawn_changes_are_those_of_the_seed_and_change_one_expression() -> None:
    one, again, other = (drawn(ROOT / CODE, 200, seed, only="holds/") for seed in (1, 1, 2))
    assert one == again != other
    changes = drawn(ROOT / CODE, 200, seed=1)
    assert len(changes) == len(set(changes)) == 200
    for change in changes:
        code = (ROOT / CODE / change.file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(change.put_into(code))) != ast.dump(ast.parse(code)), change


_OF_OR = ("((b) and (c))", "((c))", "((b))")


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("a < b <= c", {"< → <=", "<= → <"}),
        ("a is  not b", {"is not → is"}),
        ("(a not in 'ä', ä == c)", {"not in → in", "== → !="}),
        ("x = a and (b or c)", {"((a) or (b or c))", "((b or c))", "((a))", *(f"b or c → {each}" for each in _OF_OR)}),
        ("x = not a", {"not a → (a)"}),
        ("x = a if b else c", {"b → True", "b → False"}),
        ("x = [a for a in b if a.c]", {"a.c → True"}),
        ("def f(a=1, *, b=False): ...", {"1 → 2", "False → True"}),
        ("class C(D, frozen=True):\n    a: int = 1", {"1 → 2"}),
        ("A: Final = 2.5", {"2.5 → 10 * 2.5"}),
        ("A: Final = 4 << 20", {"4 << 20 → 10 * 4 << 20"}),
        ("x = a - (b)", {"- → +"}),
        ("x = any(a)", {"any → all"}),
        ("await a.add(b)", {"await a.add(b) → pass"}),
        ("x = f'{a < b}' + 'c'\n_log.info('d')\nraise E(1)", set()),
    ],
)
def test_each_operator_has_its_changes(code: str, names: set[str]) -> None:
    assert {each.name.removeprefix("a and (b or c) → ") for each in changes_of(code, "a.py")} == names


def test_changes_that_are_listed_as_equivalent_still_exist() -> None:
    names = {name for _, _, name in EQUIVALENT}
    for file in {file for file, _, _ in EQUIVALENT}:
        code = (ROOT / CODE / file).read_text(encoding="utf-8")
        named = (change for change in changes_of(code, file) if change.name in names)
        assert {each for each in EQUIVALENT if each[0] == file} <= {
            (file, one.function(code), one.name) for one in named
        }
