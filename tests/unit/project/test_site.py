"""The hook of the site that counts what users read, and the pictures of the concepts."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.concept_pictures import PICTURES, pictures

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def length() -> ModuleType:
    found = importlib.util.spec_from_file_location("site_length", DOCS / "site_length.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_words_are_those_that_are_read(length: ModuleType) -> None:
    assert length.words("Two [words](with/a-target.md).") == 2
    assert length.words("before\n\n```sh\nkubectl get pods\n```\n\n<!-- made by a script -->\nafter\n") == 2
    assert length.words("| `limits.inFlight` | integer |") == 2


def test_pages_for_authors_are_not_counted_and_too_many_words_are_a_warning(
    length: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "why.md").write_text("word " * length.MOST_WORDS)
    (tmp_path / "planning.md").write_text("word " * 10)
    config = SimpleNamespace(
        docs_dir=str(tmp_path), nav=[{"Start": ["why.md"]}, {length.AUTHORS: [{"Planning": "planning.md"}]}]
    )
    with caplog.at_level(logging.WARNING):
        length.on_nav(None, config)
        assert caplog.messages == []
        (tmp_path / "runbooks").mkdir()
        (tmp_path / "runbooks" / "RespreadDown.md").write_text("one")
        length.on_nav(None, config)
    assert [each.split(":")[0] for each in caplog.messages] == ["the users' part has 20001 words, more than 20000"]


@pytest.mark.parametrize("name", pictures())
def test_the_pictures_of_concepts_are_current(name: str) -> None:
    assert (DOCS / "images" / name).read_text(encoding="utf-8") == pictures()[name], "run `make concept-pictures`"


def test_the_pictures_show_constraints_that_hold_and_such_that_do_not() -> None:
    shown = {(name, row.group().violated) for name, rows in PICTURES.items() for row in rows}
    assert shown == {(name, violated) for name in PICTURES for violated in (True, False)}
