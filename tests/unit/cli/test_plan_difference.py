"""The output of `respread plan --diff` for two plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from respread_cli.main import respread
from tests.unit.cli.snapshots import snapshot_of
from tests.unit.cli.test_plan import web, zones


def run(cluster: Path, *arguments: str) -> Result:
    return CliRunner().invoke(respread, ["plan", "--snapshot", str(cluster), *arguments])


def differ(tmp_path: Path, before: list[dict[str, Any]], after: list[dict[str, Any]], *arguments: str) -> Result:
    old = snapshot_of(tmp_path, before, "before.json")
    new = snapshot_of(tmp_path, after, "after.json")
    plan = tmp_path / "plan.json"
    plan.write_text(run(old, "-o", "json").stdout, encoding="utf-8")
    done = run(new, "--diff", str(plan), *arguments)
    assert done.exit_code in {0, 1}, done.output
    return done


def test_the_same_cluster_has_the_same_plan(tmp_path: Path) -> None:
    cluster = [*zones("a", "b"), *web(3, 1)]
    assert differ(tmp_path, cluster, cluster).stdout == "The plans are the same.\n"
    document = json.loads(differ(tmp_path, cluster, cluster, "-o", "json").stdout)
    assert (document["constraints"], document["addedMoves"], document["removedMoves"]) == ([], [], [])


def test_a_new_violation_is_named_with_its_evictions(tmp_path: Path) -> None:
    before = [*zones("a", "b"), *web(3, 1), *web(2, 2, name="api")]
    after = [*zones("a", "b"), *web(3, 1), *web(4, 0, name="api")]
    document = json.loads(differ(tmp_path, before, after, "-o", "json").stdout)
    (constraint,) = document["constraints"]
    assert constraint["workloads"] == [{"kind": "Deployment", "name": "api"}]
    assert constraint["before"] is None
    assert (constraint["after"]["skew"], constraint["after"]["evictions"]) == (4, 2)
    assert len(document["addedMoves"]) == 2
    assert document["removedMoves"] == []
    table = differ(tmp_path, before, after).stdout
    assert "Violated constraints: 1 before, 2 now." in table
    assert "nothing to do" in table
    assert "skew 4 (maxSkew 1), 2 evictions" in table


def test_restored_and_newly_blocked_groups_are_named(tmp_path: Path) -> None:
    held = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}
    before = [*zones("a", "b"), *web(3, 1), *web(3, 0, name="api")]
    after = [*zones("a", "b"), *web(2, 2), *web(3, 0, name="api", metadata=held)]
    document = json.loads(differ(tmp_path, before, after, "-o", "json").stdout)
    found = {each["workloads"][0]["name"]: each for each in document["constraints"]}
    assert found["web"]["after"] is None
    assert found["api"]["before"]["reason"] is None
    assert found["api"]["after"]["reason"] == "ProtectedPod"
    assert len(document["removedMoves"]) == 2


def test_a_file_that_is_not_a_plan_is_an_error(tmp_path: Path) -> None:
    cluster = snapshot_of(tmp_path, [*zones("a"), *web(1)])
    done = run(cluster, "--diff", str(cluster))
    assert done.exit_code == 2
    assert "is not what `respread plan -o json` writes" in done.output
    assert run(cluster, "--diff", str(tmp_path / "none.json")).exit_code == 2
