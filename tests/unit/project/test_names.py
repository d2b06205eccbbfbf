"""The names of tests are plain sentences: a subject, a verb, the Kubernetes term."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
NO_SUBJECT = re.compile(
    r"(what(?!_if)|who|whoever|whose|whatever|where|wherever|which|that|so|of|however|then|nobody|somebody|it|its)_"
    r"|[a-z0-9]+(_[a-z0-9]+)?$"
)
"""The first word of a sentence without a subject or of an inverted one, or a name too short for a sentence."""


def names(path: Path) -> list[str]:
    """Return the names of the tests of a file, without `test_`."""
    return re.findall(r"^ *(?:async )?def test_(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_names_of_tests_begin_with_a_subject() -> None:
    found = {path: names(path) for path in TESTS.rglob("test_*.py")}
    assert sum(map(len, found.values())) > 1500
    inverted = [
        f"{path.relative_to(TESTS)}: {name}" for path, of in found.items() for name in of if NO_SUBJECT.match(name)
    ]
    assert inverted == [], "say what the subject does, as in a_replaced_pod_is_counted_once"
