"""Every filter, count and score is the scheduler's own, in every case that was recorded from it."""

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


def test_all_families_are_there() -> None:
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


def cases_of(family: str) -> list[Case]:
    return [msgspec.json.decode(line, type=Case) for line in lines_of(FAMILIES[family])]


def test_without_the_quirk_of_1_36_3_its_family_is_answered_as_the_selectors_mean_it() -> None:
    differing = [case.id for case in cases_of(QUIRK) if judge(case, keeps_namespace_selectors=False).differences]

    assert len(differing) > 20


@pytest.mark.parametrize("family", ["everything", "pod-affinity"])
def test_the_quirk_makes_no_difference_to_other_selectors(family: str) -> None:
    assert not any(judge(case, keeps_namespace_selectors=False).differences for case in cases_of(family))


# The runner itself: what it says of data that is not as our answers are.


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


def test_a_malformed_case_is_one_failure_with_its_object_and_field(tmp_path: Path) -> None:
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


def test_a_case_that_makes_no_sense_does_not_stop_the_others(tmp_path: Path) -> None:
    senseless = case_of("taints", 0)
    senseless["expected"]["nodes"]["nowhere"] = {"feasible": True}
    write(tmp_path, "taints", senseless, case_of("taints", 1))

    finished = run(tmp_path)

    assert "taints.jsonl.gz:1: judging: expected an answer, got KeyError: 'nowhere'" in finished.stdout
    assert finished.stdout.endswith("1 passed, 1 failed\n")


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoCasesError):
        families_of(tmp_path)
    assert run(tmp_path).returncode == 2
