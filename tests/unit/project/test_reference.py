"""Generated pages are current, and the policies on all pages are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from respread.api.policy import GROUP
from respread_cli.main import respread
from tests.reference import EXAMPLES, ROOT, pages

SHOWING = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def shown_policies(page: Path) -> list[str]:
    """Return the blocks of YAML in a page that hold policies."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [each for each in blocks if f"apiVersion: {GROUP}/" in each]


def lint(text: str) -> str:
    done = CliRunner().invoke(respread, ["lint", "-f", "-"], input=text)
    return "" if done.exit_code == 0 else done.output


@pytest.mark.parametrize(("page", "text"), pages().items(), ids=lambda each: getattr(each, "stem", ""))
def test_a_generated_page_is_current(page: Path, text: str) -> None:
    assert page.read_text(encoding="utf-8") == text, "run `make reference`"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda each: each.stem)
def test_examples_have_no_mistakes(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert lint(text) == ""
    assert lint(text.replace("  mode: Enforce", "  mode: Enforced").replace("  mode: DryRun", "  mode: Dry")) != ""


@pytest.mark.parametrize("page", [each for each in SHOWING if shown_policies(each)], ids=lambda each: each.stem)
def test_the_policies_that_a_page_shows_have_no_mistakes(page: Path) -> None:
    for text in shown_policies(page):
        assert all(each["metadata"]["name"] for each in yaml.safe_load_all(text))
        assert lint(text) == "", text


def test_policies_are_shown_in_many_pages() -> None:
    assert sum(len(shown_policies(each)) for each in SHOWING) > 10


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda each: each.stem)
def test_pictures_are_small_and_contain_no_other_url(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert len(text) < 100_000
    assert re.findall(r"url\([\"']?https?:|href=[\"']https?:|@import|<script", text) == []
