"""The demo's own computation and judgement, which is independent of the operator's."""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from respread.api.decoding import decode_manifest
from respread_sandbox.demo.ending import Ending, OperatorRequests, Pair, Picture, fewest_evictions, requests_of
from respread_sandbox.demo.screen import Screen
from respread_sandbox.demo.story import shipped
from respread_sandbox.demo.world import FEWEST_REPLICAS, MOST_REPLICAS, SIDES, Side, World, deployment, policy
from tests.policy_specs import enforces


def fewest_by_trying(counts: list[int], max_skew: int) -> int:
    """Return the fewest pods that leave their domain in any placement of the same number of pods within maxSkew."""
    total = sum(counts)
    return min(
        sum(max(0, count - wanted) for count, wanted in zip(counts, arrangement, strict=True))
        for arrangement in product(range(total + 1), repeat=len(counts))
        if sum(arrangement) == total and max(arrangement) - min(arrangement) <= max_skew
    )


@given(st.lists(st.integers(0, 7), min_size=1, max_size=3).filter(lambda counts: sum(counts) <= 14), st.integers(1, 3))
def test_the_fewest_evictions_equal_an_exhaustive_search(counts: list[int], max_skew: int) -> None:
    assert fewest_evictions(counts, max_skew) == fewest_by_trying(counts, max_skew)


@pytest.mark.parametrize(
    ("counts", "fewest"), [([4, 0, 0], 2), ([5, 3, 2], 1), ([2, 2, 1], 0), ([7, 0, 0], 4), ([0, 0, 0], 0), ([], 0)]
)
def test_the_fewest_evictions_of_simple_cases(counts: list[int], fewest: int) -> None:
    assert fewest_evictions(counts) == fewest


def picture(**fields: Any) -> Picture:
    given: dict[str, Any] = {
        "per_zone": {"app-1": {"zone-a": 2, "zone-b": 2, "zone-c": 1}},
        "per_host": {"app-1": {"node-a1": 1, "node-b1": 1, "node-c1": 1}},
        "pods": 5,
        "ready": 5,
        "pending": 0,
        "ranked": 0,
        "terminating": 0,
        "evicted": 1,
        "otherwise_deleted": 0,
        **fields,
    }
    return Picture(**given)


BEFORE = picture(per_zone={"app-1": {"zone-a": 3, "zone-b": 1, "zone-c": 1}}, evicted=0)
PREVENTED = picture(evicted=0)


def ending(
    *,
    code: int = 0,
    requests: OperatorRequests | None = None,
    prevented: Pair = Pair(PREVENTED, PREVENTED),  # noqa: B008 - it never changes
    **fields: Any,
) -> Ending:
    """Return the result: without prevention with these fields, with prevention unchanged."""
    return Ending(
        before=Pair(BEFORE, prevented[0]),
        after=Pair(picture(**fields), prevented[1]),
        restored_seconds=1.0,
        operator_exit_code=code,
        requests=requests or OperatorRequests(1, 5, ()),
    )


def test_the_picture_before_shows_violation_skew_and_fewest_evictions() -> None:
    assert BEFORE.violated_zones == ("app-1",)
    assert (BEFORE.worst_skew, BEFORE.fewest_evictions) == (2, 1)


def test_a_successful_demo_lists_nothing_as_missing() -> None:
    assert ending().missing == []


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (ending(per_zone=BEFORE.per_zone), "the zone constraint of app-1 does not hold in without-prevention"),
        (
            ending(per_host={"app-1": {"node-a1": 2, "node-b1": 0}}),
            "the hostname constraint of app-1 does not hold in without-prevention",
        ),
        (
            ending(pending=1, ready=4),
            "1 pod is Pending in without-prevention; 1 pod is not Ready in without-prevention",
        ),
        (ending(terminating=1), "1 pod is still being deleted in without-prevention"),
        (
            ending(evicted=2, requests=OperatorRequests(2, 5, ())),
            "2 evictions, where 1 would have done, in without-prevention",
        ),
        (ending(requests=OperatorRequests(2, 5, ())), "the API server carried out 2 evictions for the operator"),
        (ending(otherwise_deleted=2), "2 pods are gone otherwise than by an eviction in without-prevention"),
        (
            ending(prevented=Pair(BEFORE, picture(evicted=1)), requests=OperatorRequests(2, 5, ())),
            "1 eviction needed after the scale-down, and there should be none, in with-prevention",
        ),
        (
            ending(prevented=Pair(PREVENTED, picture(evicted=1)), requests=OperatorRequests(2, 5, ())),
            "1 eviction, where 0 would have done, in with-prevention",
        ),
        (
            ending(requests=OperatorRequests(1, 5, ("get /api/v1/pods",))),
            "the operator's rights do not cover get /api/v1/pods",
        ),
        (ending(code=-9), "the operator ended with exit code -9"),
    ],
    ids=range(11),
)
def test_the_demo_names_what_is_missing(ended: Ending, said: str) -> None:
    assert "; ".join(ended.missing) == said


def test_a_picture_is_settled_with_the_expected_ready_pods_and_none_terminating() -> None:
    assert picture().settled(5)
    assert not picture().settled(6)
    assert not picture(ready=4).settled(5)
    assert not picture(terminating=1).settled(5)


def test_the_same_seed_creates_the_same_objects() -> None:
    assert World.make(40, 1) == World.make(40, 1) != World.make(40, 2)
    world = World.make(40, 1)
    assert len(set(world.names)) == 40
    assert set(world.replicas_after.values()) == set(range(FEWEST_REPLICAS, MOST_REPLICAS + 1))


def test_the_constraints_are_those_of_the_concept_page() -> None:
    spec = deployment("web")["spec"]["template"]["spec"]
    assert [
        (each["topologyKey"], each["whenUnsatisfiable"], each["maxSkew"]) for each in spec["topologySpreadConstraints"]
    ] == [("topology.kubernetes.io/zone", "DoNotSchedule", 1), ("kubernetes.io/hostname", "ScheduleAnyway", 1)]


@pytest.mark.parametrize("side", SIDES)
def test_the_policies_of_the_demo_are_valid(side: Side) -> None:
    read = decode_manifest(policy(side, "Enforce"))
    assert enforces(read)
    assert not enforces(decode_manifest(policy(side, "DryRun")))
    assert read.spec.quiet_period.total_seconds() == 2
    assert (read.spec.prevention.pod_deletion_cost == "Enabled") is side.prevents


def test_the_demo_finds_crds_and_manifests() -> None:
    assert (shipped("crds") / "rebalancepolicies.respread.dev.yaml").is_file()
    assert (shipped("manifests") / "base" / "kustomization.yaml").is_file()


def test_only_the_operators_lines_of_the_audit_log_count(tmp_path: Path) -> None:
    operator, other = (
        "system:serviceaccount:respread-system:respread",
        "system:serviceaccount:respread-system:respread2",
    )
    lines = [
        line(operator, "create", 201, subresource="eviction"),
        line(operator, "create", 429, subresource="eviction"),
        line(other, "create", 201, subresource="eviction"),
        line(operator, "patch", 200),
        line(operator, "patch", 200, subresource="status"),
        line(operator, "patch", 409),
        line(other, "patch", 200),
        line(operator, "list", 403),
        line(operator, "list", 403),
        line(operator, "list", 200),
        line(other, "list", 403, about=operator),
        f'{{"user":{{"username":"{operator}"}},"verb":"watch","requestURI":"/"}}',
    ]
    log = tmp_path / "audit.log"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert requests_of("respread-system:respread", log) == OperatorRequests(1, 1, ("list /api/v1/pods",))


def line(user: str, verb: str, code: int, *, subresource: str = "", about: str = "") -> str:
    return (
        f'{{"user":{{"username":"{user}"}},"verb":"{verb}","requestURI":"/api/v1/pods?about={about}",'
        f'"objectRef":{{"resource":"pods","subresource":"{subresource}"}},"responseStatus":{{"code":{code}}}}}'
    )


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_picture_fits_the_terminal(width: int, encoding: str) -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=width, highlight=False)
    screen = Screen(console)
    zones = {f"app-{number:02}": {"zone-a": number % 5, "zone-b": 2, "zone-c": 1} for number in range(40)}
    with console.capture() as captured:
        console.print(screen.picture(Pair(picture(per_zone=zones), PREVENTED), "a line"))
    text = captured.get()
    text.encode(encoding)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 20
    assert lines[0].split("  ")[0] == "Without prevention"
    assert ("07 " if encoding == "utf-8" else "07 2 2 1") in text
    assert ("04✗" if encoding == "utf-8" else "04!4 2 1") in text
    assert "24 of 40 violated, worst" in text
    assert lines[-1] == "a line"


def test_without_a_terminal_the_demo_prints_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Console(width=100, highlight=False))
    with screen.step("Doing it …") as step:
        step.result = "Done it"
    with screen.live() as live:
        live.show(Pair(BEFORE, PREVENTED), "[red]bad[/]")
        live.show(Pair(picture(), PREVENTED), "[green]good[/]")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "… Doing it …"
    assert lines[1].startswith("✓ Done it (")
    assert lines[2] == "    0.0 s  bad"
    assert lines[-1] == "good"
    assert lines[-3].split("  ")[0] == "1 ▄▄▂ 2 2 1"


def test_without_unicode_the_demo_prints_ascii() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    screen = Screen(Console(file=out, width=80, highlight=False))
    with screen.step("Doing it …") as step:
        step.result = "Done it"
    with screen.live() as live:
        live.show(Pair(BEFORE, PREVENTED), "bad …")
    out.seek(0)
    lines = out.read().splitlines()
    assert lines[0] == "... Doing it ..."
    assert lines[1].startswith("ok Done it (")
    assert lines[2] == "    0.0 s  bad ..."
