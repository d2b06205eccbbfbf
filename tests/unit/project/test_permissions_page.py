"""The table of permissions in the threat model is that of the roles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (cluster|namespace)(, with \S+)?[^|]* \| `(\S+)` \| ([^|]+) \| ([^|]+) \|[^|]+\|$", re.MULTILINE)
Right = tuple[str, str, str, str]


def documented(component: str) -> set[Right]:
    """Return where, group, resource and verb of the rows for a component; the base has no name."""
    return {
        (where, "" if group == '""' else group, resource, verb)
        for where, extra, group, resources, verbs in ROW.findall(PAGE)
        if (component in extra if component else not extra)
        for resource in resources.split(", ")
        for verb in verbs.split(", ")
    }


def granted(*files: str) -> set[Right]:
    return {
        ("cluster" if role["kind"] == "ClusterRole" else "namespace", group, resource, verb)
        for file in files
        for role in yaml.safe_load_all((ROOT / "manifests" / file).read_text(encoding="utf-8"))
        if role["kind"] in ("ClusterRole", "Role")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("component", "files"),
    [
        ("", ("base/cluster-role.yaml", "base/role.yaml")),
        ("prevention", ("components/prevention/cluster-role.yaml",)),
        ("room", ("components/room/role.yaml",)),
    ],
)
def test_the_threat_model_lists_every_permission(component: str, files: tuple[str, ...]) -> None:
    assert documented(component) == granted(*files)
    assert documented(component)
