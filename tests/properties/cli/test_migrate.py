"""Any changed policy of descheduler is migrated completely or rejected, and never causes a traceback."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from respread.api.decoding import decode_manifest
from respread_cli.commands.migrate import migrate
from tests.descheduler_policies import DOCUMENTS

SCALARS: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**70, 1.5, float("inf")),
    *("", "x", "a b", "\n", "*/2 * * * *", "@every 1h", "1h", "descheduler/v1alpha2"),
]
VALUES = st.sampled_from(
    [*SCALARS, [], ["x"], [None], [[]], [{}], {}, {"a": 1}, {"name": "x"}, {"": None}, {1: 2}, {"enabled": True}]
)
NAMES = st.sampled_from(["x", "weight", "profiles", "strategies", "name", 1, "plugins", "enabled", "schedule", "data"])


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything below a value."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*above, key)
        yield from places(each, (*above, key))


@st.composite
def changed_documents(draw: st.DrawFn) -> str:
    document = yaml.safe_load(draw(st.sampled_from(list(DOCUMENTS.values()))))
    wrapped = document if document.get("kind") == "ConfigMap" and draw(st.booleans()) else None
    if wrapped:
        document = yaml.safe_load(wrapped["data"]["policy.yaml"])
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(document))
        if not found:
            break
        *above, last = draw(st.sampled_from(found))
        at = document
        for key in above:
            at = at[key]
        what = draw(st.sampled_from(["replace", "replace", "add", "remove"]))
        if what == "remove":
            del at[last]
        else:
            name = draw(NAMES) if what == "add" and isinstance(at, dict) else last
            at[name] = copy.deepcopy(draw(VALUES))
    if wrapped:
        wrapped["data"]["policy.yaml"] = yaml.safe_dump(document)
        document = wrapped
    return yaml.safe_dump(document)


@given(documents=st.lists(changed_documents(), min_size=1, max_size=2))
def test_migrated_policies_are_valid_and_rejected_input_writes_nothing(documents: list[str]) -> None:
    done = CliRunner().invoke(migrate, [], input="---\n".join(documents))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    if done.exit_code == 0:
        for policy in filter(None, yaml.safe_load_all(done.stdout)):
            read = decode_manifest(policy)
            assert not read.problems
            assert read.spec.mode == "DryRun"
    else:
        assert done.exit_code == 2
        assert done.stdout == ""
        assert "standard input" in done.stderr
