"""Workflows run what a machine of your own runs: every step that builds or checks is a target of the Makefile."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from respread import __version__

ROOT: Final = Path(__file__).parents[3]
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
BUILDERS: Final = re.compile(
    r"\b(pip|python3?|twine|helm|cosign|cyclonedx\S*|buildah|podman|docker build|docker buildx build)\b"
)


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.stem)
def test_what_it_runs_is_there(workflow: Path) -> None:
    targets: set[str] = set()
    for step in steps(workflow):
        for line in step.get("run", "").splitlines():
            assert not BUILDERS.search(line.replace("docker buildx imagetools", "")), line
            for script in re.findall(r"\.ci/\w+", line):
                assert (ROOT / script).is_file()
            for command in re.findall(r"\bmake ([^>&|]*)", line):
                targets |= {word for word in command.split() if re.fullmatch(r"[a-z][a-z-]*", word)}
    assert targets
    subprocess.run(["make", "--dry-run", *sorted(targets)], cwd=ROOT, check=True, capture_output=True)


def test_releases_are_checked_before_anything_is_published() -> None:
    (release,) = (each for each in WORKFLOWS if each.stem == "release")
    jobs = yaml.safe_load(release.read_text(encoding="utf-8"))["jobs"]
    assert jobs["build"]["needs"] == jobs["image"]["needs"] == "test"
    assert jobs["publish"]["needs"] == ["build", "image"]
    build = " ".join(step.get("run", "") for step in jobs["build"]["steps"])
    assert build.index("make check-tag") < build.index("make dist check-dist") < build.index("make sign")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_tag_of_another_version_or_without_a_section_in_the_changelog_is_refused() -> None:
    other = make("check-tag", "TAG=v9.9.9")
    assert other.returncode != 0
    assert f"The tag is v9.9.9, the version v{__version__}" in other.stderr
    if f"## {__version__}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        assert "has no section" in make("check-tag", f"TAG=v{__version__}").stderr
