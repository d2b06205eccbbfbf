"""Files for contributors name existing targets, folders and labels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_pre_commit_hooks_call_only_make_targets() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        make, *targets = hook["entry"].split()
        assert make == "make"
        subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, check=True, capture_output=True)


def test_folders_in_codeowners_exist() -> None:
    lines = (ROOT / ".github/CODEOWNERS").read_text(encoding="utf-8").splitlines()
    patterns = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    for pattern in patterns[1:]:
        assert (ROOT / pattern.lstrip("/")).exists(), pattern


def test_issue_forms_are_valid() -> None:
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"):
        content = yaml.safe_load(form.read_text(encoding="utf-8"))
        questions = [each for each in content["body"] if each["type"] != "markdown"]
        assert len({each["id"] for each in questions}) == len(questions)
        assert any(each.get("validations", {}).get("required") for each in questions)
