"""Every filter, count and score agrees with the scheduler in every recorded case."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.cases import Case, NoCasesError, families_of, lines_of
from tests.conformance.families import run_family
from tests.conformance.judging import judge

DATA = Path(__file__).parent / "data"
FAMILIES = families_of(DATA)
QUIRK = "pod-affinity-1.36-quirk"
OLDER = {version: families_of(DATA / version) for version in ("1.33",)}


def test_all_families_exist() -> None:
    assert list(FAMILIES) == [
        "everything",
        "node-affinity",
        "node-name",
        "pod-affinity",
        QUIRK,
        "ports",
        "quantities",
        "resources",
        "soft-score",
        "spread-basic",
        "spread-defaults",
        "spread-matchlabelkeys",
        "spread-mindomains",
        "spread-policies",
        "taints",
        "volumes",
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_of_a_family_agrees(family: str) -> None:
    result = run_family(family, FAMILIES[family])

    assert result.cases > 0
    assert not result.differences, "\n".join(map(str, result.differences[:20]))


@pytest.mark.parametrize(
    ("version", "family"), [(version, family) for version, families in OLDER.items() for family in families]
)
def test_an_older_scheduler_is_predicted_with_the_rules_of_its_version(version: str, family: str) -> None:
    result = run_family(family, OLDER[version][family], f"v{version}.0")

    assert result.cases > 0
    assert not result.differences, "\n".join(map(str, result.differences[:20]))


def test_an_older_scheduler_is_mispredicted_with_the_rules_of_the_newest_version() -> None:
    assert run_family(QUIRK, OLDER["1.33"][QUIRK]).wrong_verdicts > 20


def cases_of(family: str) -> list[Case]:
    return [msgspec.json.decode(line, type=Case) for line in lines_of(FAMILIES[family])]


def test_without_the_bug_of_1_36_3_namespace_selectors_have_their_documented_meaning() -> None:
    differing = [case.id for case in cases_of(QUIRK) if judge(case, keeps_namespace_selectors=False).differences]

    assert len(differing) > 20


@pytest.mark.parametrize("family", ["everything", "pod-affinity"])
def test_the_bug_does_not_affect_other_selectors(family: str) -> None:
    assert not any(judge(case, keeps_namespace_selectors=False).differences for case in cases_of(family))


# The runner itself, with data that differs from Respread's answers or is malformed.


def case_of(family: str, number: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(list(lines_of(FAMILIES[family]))[number])
    return document


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.conformance", str(folder)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def write(folder: Path, family: str, *documents: dict[str, Any]) -> None:
    with gzip.open(folder / f"{family}.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(document)}\n" for document in documents)


def test_the_runner_names_case_node_plugin_and_both_answers(tmp_path: Path) -> None:
    case = case_of("spread-basic", 0)
    name = next(name for name, node in case["expected"]["nodes"].items() if node["feasible"])
    case["expected"]["nodes"][name] = {
        "feasible": False,
        "rejectedBy": ["NodePorts"],
        "reasons": {"NodePorts": ["busy"]},
    }
    write(tmp_path, "spread-basic", case, case_of("spread-basic", 1))

    finished = run(tmp_path)

    lines = finished.stdout.splitlines()
    assert lines[0].startswith("spread-basic")
    assert f"spread-basic/0000, node {name}: NodePorts: expected a rejection (busy), got none" in finished.stdout
    assert lines[-1] == "1 passed, 1 failed"
    assert finished.returncode == 1


def test_the_runner_compares_counts_minimum_and_scores(tmp_path: Path) -> None:
    hard = next(
        case for number in range(20) if (case := case_of("spread-basic", number))["expected"]["topologySpread"]["hard"]
    )
    hard["expected"]["topologySpread"]["hard"][0]["minMatchNum"] += 1
    hard["expected"]["topologySpread"]["hard"][0]["counts"]["nowhere"] = 1
    soft = next(
        case for number in range(20) if (case := case_of("soft-score", number))["expected"]["topologySpread"]["soft"]
    )
    scored = next(iter(soft["expected"]["topologySpread"]["scores"].values()))
    scored["normalized"] += 1
    write(tmp_path, "mixed", hard, soft)

    finished = run(tmp_path)

    for what in ("hard[0].min_match_num", "hard[0].counts", "normalized score"):
        assert what in finished.stdout
    assert finished.stdout.endswith("0 passed, 2 failed\n")


def test_a_malformed_case_is_one_failure_that_names_its_object_and_field(tmp_path: Path) -> None:
    malformed = case_of("resources", 0)
    malformed["nodes"][0]["status"]["allocatable"]["cpu"] = "four"
    good = case_of("resources", 1)
    write(tmp_path, "resources", malformed, good)
    with gzip.open(tmp_path / "resources.jsonl.gz", "at", encoding="utf-8") as file:
        file.write("{not a case\n")

    finished = run(tmp_path)

    name = malformed["nodes"][0]["metadata"]["name"]
    assert f"nodes {name}: status.allocatable[cpu]: 'four' is not a quantity" in finished.stdout
    assert "resources.jsonl.gz:3: reading" in finished.stdout
    assert finished.stdout.endswith("1 passed, 2 failed\n")


def test_an_invalid_case_does_not_stop_the_others(tmp_path: Path) -> None:
    senseless = case_of("taints", 0)
    senseless["expected"]["nodes"]["nowhere"] = {"feasible": True}
    write(tmp_path, "taints", senseless, case_of("taints", 1))

    finished = run(tmp_path)

    assert "taints.jsonl.gz:1: judging: expected an answer, got KeyError: 'nowhere'" in finished.stdout
    assert finished.stdout.endswith("1 passed, 1 failed\n")


@pytest.mark.parametrize("place", [".", "nowhere", "README.md"])
def test_a_folder_without_data_is_rejected(tmp_path: Path, place: str) -> None:
    (tmp_path / "README.md").write_text("No data.")
    with pytest.raises(NoCasesError):
        families_of(tmp_path / place)
    finished = run(tmp_path / place)
    assert finished.returncode == 2
    assert finished.stderr.startswith(str(tmp_path))


def test_a_truncated_or_corrupt_file_fails_and_the_others_are_judged(tmp_path: Path) -> None:
    (tmp_path / "cut-off.jsonl.gz").write_bytes(FAMILIES["taints"].read_bytes()[:3000])
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "spoilt.jsonl.gz").write_bytes(b"not gzip")
    (tmp_path / "unreadable.jsonl").write_bytes(b'{"id": "\xff"}\n')
    write(tmp_path, "whole", case_of("taints", 0))

    finished = run(tmp_path)

    assert "cut-off.jsonl.gz: reading: expected more cases" in finished.stdout
    assert "empty.jsonl: reading: expected cases, got an empty file" in finished.stdout
    assert "spoilt.jsonl.gz can't be read: Not a gzipped file" in finished.stdout
    assert "unreadable.jsonl:1: reading: expected a case" in finished.stdout
    assert finished.stdout.splitlines()[-1].endswith(" passed, 4 failed")
    assert finished.returncode == 1
    assert not finished.stderr


def test_one_family_is_judged_from_a_plain_or_gzipped_file(tmp_path: Path) -> None:
    plain = tmp_path / "ports.jsonl"
    plain.write_bytes(gzip.decompress(FAMILIES["ports"].read_bytes()))

    assert run(plain).stdout == run(FAMILIES["ports"]).stdout
    assert run(plain).stdout.endswith("150 passed, 0 failed\n")


def test_empty_fields_may_be_null_or_missing_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    """Another generator may write such data: Go writes a nil slice as null."""

    def with_more(manifest: dict[str, Any]) -> dict[str, Any]:
        parts = {part: {**manifest[part], "unseen": {"a": [1]}} for part in ("metadata", "spec", "status")}
        return {**manifest, **parts, "unseen": [{}]}

    cases = [case_of(family, number) for family in ("everything", "spread-defaults") for number in range(40)]
    for case in cases:
        for field in [field for field, value in case.items() if value == []]:
            case[field] = None
        for node in case["expected"]["nodes"].values():
            node.setdefault("rejectedBy", None)
        for part in ("hard", "soft", "scores", "ignoredNodes"):
            spread = case["expected"]["topologySpread"]
            spread[part] = spread.get(part) or None
        case["expected"]["feasibleNodes"] = case["expected"]["feasibleNodes"] or None
        case["pod"], case["nodes"] = with_more(case["pod"]), [with_more(node) for node in case["nodes"]]
        case["csiDrivers"] = [{"metadata": {"name": "new"}}]
    write(tmp_path, "bare", *cases)

    assert run(tmp_path).stdout.endswith("80 passed, 0 failed\n")
