"""Reports and tables of spread groups."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from immutables import Map
from rich.console import Console
from rich.table import Table

from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod, WorkloadName
from respread.cluster.state import ClusterSnapshot
from respread.planning.audit.auditor import Auditor
from respread.spread.index import Spread
from respread_cli.commands.skew import SkewView, summary
from respread_cli.main import respread
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.render.groups import Domain, bar, domains_shown
from respread_cli.render.output import print_parts
from respread_cli.report.scale_downs import protection_reports
from respread_cli.report.skew_report import (
    GroupFilter,
    GroupReport,
    SkewReport,
    SortOrder,
    skew_report,
    unknown_workloads,
)
from respread_cli.report.target import WorkloadReference, joined_words, workload_matches
from tests.policy_specs import policy_manifest
from tests.spreads import spread_of
from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, snapshot_of
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pods, spec

VIEW = ReadCluster(snapshot=ClusterSnapshot(), time=NOW, source="a test")


def report_of(spread: Spread, **wanted: object) -> SkewReport:
    return skew_report(VIEW, spread, GroupFilter(**wanted))  # type: ignore[arg-type]  # by name


def workload(name: str, counts: Mapping[str, int], *, when: str = "DoNotSchedule", **fields: object) -> list[Pod]:
    """Return pods of a StatefulSet with a zone constraint."""
    of = spec(constraint(ZONE, when=when, selector={"app": name}))  # type: ignore[arg-type]  # a literal
    owner = OwnerReference("apps/v1", "StatefulSet", name, f"uid-{name}")
    return pods(counts, of, prefix=name, labels=Map(app=name), controller=owner, **fields)


def three_zones() -> Spread:
    nodes = [node(zone, zone) for zone in ("a", "b", "c")]
    placed = [
        *workload("fine", {"a": 2, "b": 2, "c": 1}),
        *workload("soft", {"a": 9}, when="ScheduleAnyway"),
        *workload("bad", {"a": 3, "b": 1, "c": 1}),
        *workload("worst", {"a": 4, "b": 1}, namespace="shop"),
    ]
    return spread_of(cluster(nodes, placed))


def test_groups_come_worst_first_and_soft_ones_after_hard_ones() -> None:
    report = report_of(three_zones())
    assert [group.workloads[0].name for group in report.groups] == ["worst", "bad", "soft", "fine"]
    assert report.violated == 3
    assert report.worst_skew == 9


def test_a_group_is_reported_with_every_domain() -> None:
    (group,) = report_of(three_zones(), namespace="shop").groups
    assert group == GroupReport(
        namespace="shop",
        workloads=(WorkloadReference("StatefulSet", "worst"),),
        topology_key=ZONE,
        when_unsatisfiable="DoNotSchedule",
        max_skew=1,
        min_domains=1,
        selector="app=worst",
        violated=True,
        skew=4,
        minimum=0,
        excess=3,
        pods=5,
        domains=3,
        empty_domains=1,
        counts={"a": 4, "b": 1, "c": 0},
        state="Violation",
    )


def test_a_constraint_that_cannot_work_comes_with_cause_cure_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    of = spec(constraint(ZONE, max_skew=9))
    placed = [
        *workload("fine", {"a": 1, "b": 1, "c": 1}),
        *pods({"a": 3}, of, controller=OwnerReference("apps/v1", "StatefulSet", "loose", "uid-loose")),
    ]
    snapshot = cluster([node(zone, zone) for zone in ("a", "b", "c")], placed)
    spread = spread_of(snapshot)
    findings = Auditor().update(snapshot, spread)
    report = skew_report(VIEW, spread, GroupFilter(), findings=findings, problems=True)
    assert [(group.state, group.violated) for group in report.groups] == [("Ineffective", False)]
    (finding,) = report.groups[0].findings
    assert finding.command == (
        "kubectl -n default patch statefulset/loose --type=json -p "
        """'[{"op":"test","path":"/spec/template/spec/topologySpreadConstraints/0/topologyKey","value":"""
        """"topology.kubernetes.io/zone"},"""
        """{"op":"add","path":"/spec/template/spec/topologySpreadConstraints/0/maxSkew","value":1}]'"""
    )
    console = Console(file=io.StringIO(), width=80)
    parts = [*SkewView(console, wide=False, with_namespace=True, problems=True).render(report)]
    print_parts(console, parts)
    assert f"\n  {finding.command}\n  {finding.docs}\n" in capsys.readouterr().out  # in one piece, to be copied
    assert isinstance(parts[0], Table)
    assert "1 has no effect." in summary(report).plain


def pending_pod(name: str, app: str, **fields: object) -> dict[str, object]:
    (model,) = deployment_pods(app, {"a": 1})
    return model | {
        "metadata": model["metadata"] | {"name": name, "uid": f"uid-{name}"},
        "spec": {key: value for key, value in model["spec"].items() if key != "nodeName"} | fields,
        "status": {"phase": "Pending"},
    }


def test_pending_pods_are_rows_with_the_reason_for_each_constraint(tmp_path: Path) -> None:
    nodes = [manifest_of_node("a", "zone-a"), manifest_of_node("b", "zone-b", spec={"unschedulable": True})]
    gated = pending_pod("web-gated", "gated", schedulingGates=[{"name": "example.com/quota"}])
    waiting = [pending_pod(f"web-{number}", "web") for number in (1, 2)]
    file = snapshot_of(tmp_path, [*nodes, *deployment_pods("web", {"a": 1}), *waiting, gated])
    report = json.loads(CliRunner().invoke(respread, ["skew", "--snapshot", str(file), "-o", "json"]).stdout)
    of_web, of_gated = report["pending"]
    assert {key: of_web[key] for key in ("namespace", "workload", "pods", "pod")} == {
        "namespace": "default",
        "workload": {"kind": "Deployment", "name": "web"},
        "pods": 2,
        "pod": "web-1",
    }
    assert [(each["plugin"], each["topologyKey"], each["nodes"]) for each in of_web["rejections"]] == [
        ("PodTopologySpread", ZONE, 1),
        ("NodeUnschedulable", None, 1),
    ]
    assert of_web["message"].startswith(f"0 of 2 nodes are available: 1 would break {ZONE} (a: {ZONE} zone-a has 1")
    assert (of_gated["rejections"], "scheduling gates" in of_gated["message"]) == ([], True)
    for command in (["skew"], ["skew", "--problems"], ["plan"]):
        shown = CliRunner().invoke(respread, [*command, "--snapshot", str(file)], env={"COLUMNS": "160"}).stdout
        (row,) = (line for line in shown.splitlines() if "deploy/web" in line and "would break" in line)
        assert row.split()[:4] == ["⧗", "default", "deploy/web", "2"], command
        assert "3 pods are Pending." in " ".join(shown.split())


def test_empty_domains_of_a_group_with_many_are_counted_not_named() -> None:
    nodes = [node(f"n{number}", "a") for number in range(150)]
    of = spec(constraint(HOSTNAME))
    (group,) = report_of(spread_of(cluster(nodes, pods({"n1": 2, "n7": 1}, of)))).groups
    assert group.counts == {"n1": 2, "n7": 1}
    assert (group.domains, group.empty_domains) == (150, 148)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"workloads": ("bad",)}, ["bad"]),
        ({"workloads": ("sts/bad", "statefulset/fine")}, ["bad", "fine"]),
        ({"workloads": ("deploy/bad",)}, []),
        ({"workloads": ("*s*",)}, ["worst", "soft"]),
        ({"namespace": "shop"}, ["worst"]),
        ({"topology_keys": ("zone",)}, ["worst", "bad", "soft", "fine"]),
        ({"topology_keys": (ZONE,), "namespace": "shop"}, ["worst"]),
        ({"topology_keys": ("hostname",)}, []),
        ({"when_unsatisfiable": "ScheduleAnyway"}, ["soft"]),
    ],
)
def test_groups_are_filtered_by_workload_namespace_topology_key_and_when_unsatisfiable(
    wanted: dict[str, object], found: list[str]
) -> None:
    assert [group.workloads[0].name for group in report_of(three_zones(), **wanted).groups] == found


@pytest.mark.parametrize(
    "typed", ["web", "deploy/web", "deployment/web", "Deployment/web", "deployments.apps/web", "w?b", "deploy/*"]
)
def test_a_workload_name_is_accepted_in_every_form_of_kubectl(typed: str) -> None:
    assert workload_matches(typed, WorkloadName("Deployment", "default", "web"))


@pytest.mark.parametrize("typed", ["we", "sts/web", "web/deploy", "deploy/web2", ""])
def test_names_of_other_workloads_do_not_match(typed: str) -> None:
    assert not workload_matches(typed, WorkloadName("Deployment", "default", "web"))


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("rollout/web", "Rollout"),
        ("rollouts/web", "Rollout"),
        ("rollouts.argoproj.io/web", "Rollout"),
        ("clone/web", "CloneSet"),
        ("clonesets.apps.kruise.io/web", "CloneSet"),
        ("fleet/web", "Fleet"),
    ],
)
def test_a_custom_kind_is_matched_by_its_name(typed: str, kind: str) -> None:
    assert workload_matches(typed, WorkloadName(kind, "default", "web"))


def test_an_unknown_name_is_reported_and_an_unmatched_pattern_is_not() -> None:
    assert unknown_workloads(three_zones(), GroupFilter(workloads=("bad", "typo", "none-*"))) == ["typo"]
    assert unknown_workloads(three_zones(), GroupFilter(workloads=("bad",), namespace="shop")) == ["bad"]


def ordered(order: SortOrder, limit: int | None = None) -> SkewReport:
    return skew_report(VIEW, three_zones(), GroupFilter(), order=order, limit=limit)


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("severity", ["worst", "bad", "soft", "fine"]),
        ("skew", ["soft", "worst", "bad", "fine"]),
        ("pods", ["soft", "worst", "bad", "fine"]),
        ("namespace", ["bad", "fine", "soft", "worst"]),
        ("workload", ["bad", "fine", "soft", "worst"]),
        ("key", ["worst", "bad", "soft", "fine"]),
    ],
)
def test_groups_are_sorted_as_requested(order: SortOrder, names: list[str]) -> None:
    assert [group.workloads[0].name for group in ordered(order).groups] == names


def test_a_limit_leaves_out_the_last_groups_and_still_counts_them() -> None:
    report = ordered("severity", limit=1)
    assert [group.workloads[0].name for group in report.groups] == ["worst"]
    assert (report.violated, report.worst_skew, report.left_out) == (3, 9, 3)
    assert summary(report).plain == "1 of 4 constraints are shown (--limit). 3 of the 4 are violated."


def test_only_violated_groups_are_shown_if_requested() -> None:
    report = report_of(three_zones(), only_violated=True)
    assert [group.workloads[0].name for group in report.groups] == ["worst", "bad", "soft"]


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (("deployment", "web"), ("deployment/web",)),
        (("deployments.apps", "web", "api"), ("deployments.apps/web", "api")),
        (("web", "sts", "db"), ("web", "sts/db")),
        (("deploy/web", "api"), ("deploy/web", "api")),
        (("job",), ("job",)),
        (("pod", "deploy/web"), ("pod", "deploy/web")),
    ],
)
def test_a_kind_and_a_name_may_be_two_words(words: tuple[str, ...], joined: tuple[str, ...]) -> None:
    assert joined_words(words) == joined


def test_the_legend_says_what_the_signs_of_the_table_mean() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    _, legend, *_ = SkewView(console, wide=False, with_namespace=True).render(report_of(three_zones()))
    assert str(legend) == (
        "✗ violated, ! violated, ScheduleAnyway, ✓ holds. SKEW/MAX: the skew and the maxSkew of the constraint."
    )


def failed(tmp_path: Path, *arguments: str) -> str:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    file = snapshot_of(tmp_path, [manifest_of_node("a", "a"), *deployment_pods("web", {"a": 1}), namespace])
    done = CliRunner().invoke(respread, ["skew", "--snapshot", str(file), *arguments])
    assert done.exit_code == 2
    return done.stderr.splitlines()[-1]


def test_a_namespace_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    assert failed(tmp_path, "-n", "defautl") == "Error: there is no namespace defautl. Did you mean default?"
    assert failed(tmp_path, "-n", "nope") == "Error: there is no namespace nope."


def test_only_a_close_workload_is_suggested(tmp_path: Path) -> None:
    assert failed(tmp_path, "deployment", "wbe").endswith("has a topology spread constraint. Did you mean web?")
    assert failed(tmp_path, "deploy/nope").endswith("has a topology spread constraint.")


def printed(
    report: SkewReport, width: int, *, wide: bool = False, encoding: str = "utf-8", colors: bool = False
) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, force_terminal=colors, highlight=False)
    table = next(SkewView(console, wide=wide, with_namespace=True).render(report))
    with console.capture() as captured:
        console.print(table)
        console.print(summary(report))
    return captured.get()


def big() -> Spread:
    """Return a cluster with names as in clouds and 5,000 nodes."""
    nodes = [
        node(
            f"ip-10-0-{number // 256}-{number % 256}.eu-central-1.compute.internal", f"eu-central-1{'abc'[number % 3]}"
        )
        for number in range(5_000)
    ]
    of = spec(constraint(ZONE), constraint(HOSTNAME, when="ScheduleAnyway"))
    counts = {each.name: 4 if number < 2 else 2 if number < 9 else 1 for number, each in enumerate(nodes[:30])}
    owner = OwnerReference("apps/v1", "StatefulSet", "the-one-database-for-everything-that-there-is", "uid")
    placed = pods(counts, of, namespace="a-namespace-with-a-rather-long-name", controller=owner)
    return spread_of(cluster(nodes, placed))


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
def test_a_table_with_long_names_fits_the_terminal(width: int) -> None:
    for line in printed(report_of(big()), width).splitlines():
        assert len(line) <= width


def test_numbers_and_bars_are_shown_in_80_columns() -> None:
    lines = printed(report_of(big()), 80).splitlines()
    assert lines[0].split() == ["NAMESPACE", "WORKLOAD", "KEY", "SKEW/MAX", "PODS", "PER", "DOMAIN"]
    hosts = lines[next(at for at, line in enumerate(lines) if "4/1" in line) :]
    assert all("ip-10-0-0-" in line and line.rstrip().endswith("█") for line in hosts[:6])


def test_thousands_of_hosts_are_summarized_in_a_few_lines() -> None:
    text = printed(report_of(big(), topology_keys=("hostname",)), 100)
    assert len(text.splitlines()) < 15
    assert "2 in 3 domains" in text
    assert "1 in 21 domains" in text
    assert "0 in 4,970 domains" in text


def test_a_balanced_group_takes_one_line() -> None:
    text = printed(report_of(three_zones(), workloads=("fine",)), 100)
    assert text.splitlines()[1].split() == ["✓", "default", "sts/fine", "zone", "1/1", "██▄", "2", "2", "1"]


def test_a_balanced_group_over_many_hosts_takes_one_line() -> None:
    nodes = [node(f"n{number}", "a") for number in range(40)]
    report = report_of(spread_of(cluster(nodes, pods({"n1": 1, "n7": 1}, spec(constraint(HOSTNAME))))))
    assert printed(report, 100).splitlines()[1].endswith("1 in 2 domains, 0 in 38 domains")


def test_a_violated_group_has_a_line_for_each_domain() -> None:
    lines = printed(report_of(three_zones(), workloads=("bad",)), 100).splitlines()
    assert [line.split()[-3:] for line in lines[1:4]] == [["a", "3", "███"], ["b", "1", "█"], ["c", "1", "█"]]


def test_wide_shows_the_constraint_and_every_domain() -> None:
    text = printed(report_of(three_zones(), workloads=("fine",)), 160, wide=True)
    assert ZONE in text
    assert "DoNotSchedule" in text
    assert "app=fine" in text
    assert [line.split()[-3:] for line in text.splitlines()[1:4]] == [
        ["a", "2", "██"],
        ["b", "2", "██"],
        ["c", "1", "█"],
    ]


def test_plain_output_has_no_escapes_and_colored_output_has() -> None:
    assert "\x1b" not in printed(report_of(three_zones()), 100)
    assert "\x1b[31m" in printed(report_of(three_zones()), 100, colors=True)


def test_without_unicode_the_table_is_ascii() -> None:
    printed(report_of(big()), 100, encoding="ascii").encode("ascii")
    text = printed(report_of(three_zones(), workloads=("bad",)), 100, encoding="ascii")
    text.encode("ascii")
    assert "a 3 ###" in text


def test_lines_have_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=100)
    report = report_of(three_zones())
    print_parts(console, [next(SkewView(console, wide=False, with_namespace=True).render(report))])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({}, "3 of 4 constraints violated: 2 DoNotSchedule, 1 ScheduleAnyway."),
        ({"workloads": ("bad",)}, "1 of 1 constraint violated: 1 DoNotSchedule."),
        ({"workloads": ("soft",)}, "1 of 1 constraint violated: 1 ScheduleAnyway."),
        ({"workloads": ("fine",)}, "The constraint holds."),
        ({"namespace": "nowhere"}, "No pod has such a topology spread constraint."),
    ],
)
def test_the_last_line_is_a_summary(wanted: dict[str, object], said: str) -> None:
    assert summary(report_of(three_zones(), **wanted)).plain == said


def test_topology_keys_with_the_same_suffix_are_shown_in_full() -> None:
    of = spec(constraint(ZONE), constraint("example.com/zone"))
    nodes = [node("a", "a", labels={"example.com/zone": "x"})]
    text = printed(report_of(spread_of(cluster(nodes, pods({"a": 1}, of)))), 160)
    assert "example.com/zone" in text
    assert ZONE in text


def test_a_group_without_any_domain_says_so() -> None:
    of = spec(constraint("example.com/rack"))
    assert "no eligible domain" in printed(report_of(spread_of(cluster([node("a", "a")], pods({"a": 1}, of)))), 100)


def test_domains_that_are_not_named_are_counted() -> None:
    counts = {f"d{number}": 1 for number in range(8)} | {"full": 5, "fuller": 6}
    shown = domains_shown(counts, 2, 3, most=6)
    assert shown == [Domain("fuller", 6), Domain("full", 5), Domain("", 1, 8), Domain("", 0, 3)]


@pytest.mark.parametrize(
    ("count", "allowed", "most", "columns", "length"), [(3, 5, 5, 10, 3), (50, 60, 100, 10, 5), (0, 1, 9, 10, 0)]
)
def test_bars_have_a_column_per_pod_or_are_scaled(
    count: int, allowed: int, most: int, columns: int, length: int
) -> None:
    assert bar(count, allowed, most, columns).cell_len == length


def test_the_pods_above_max_skew_stand_out_in_a_bar() -> None:
    drawn = bar(5, 2, 5, 10)
    assert drawn.plain == "█████"
    assert (drawn.style, [(span.start, span.end, span.style) for span in drawn.spans]) == ("green", [(2, 5, "red")])


PREVENTS = policy_manifest("prevents", {"prevention": {"podDeletionCost": "Enabled"}})


def test_wide_and_json_say_whether_a_workload_is_protected(tmp_path: Path) -> None:
    nodes = [manifest_of_node("node-a", "zone-a"), manifest_of_node("node-b", "zone-b")]
    placed = {"node-a": 1, "node-b": 1}
    file = snapshot_of(tmp_path, [*nodes, *deployment_pods("web", placed), PREVENTS])

    def shown(*arguments: str) -> str:
        return CliRunner().invoke(respread, ["skew", "--snapshot", str(file), *arguments]).stdout

    (told,) = json.loads(shown("-o", "json"))["protections"]
    assert (told["namespace"], told["workload"]) == ("default", {"kind": "Deployment", "name": "web"})
    assert (told["protected"], told["reason"], told["policy"]) == (False, "NotRanked", "prevents")
    wide = shown("-o", "wide").splitlines()
    assert "SCALE-DOWNS" in wide[0].split()
    assert "NotRanked" in wide[1].split()
    assert "SCALE-DOWNS" not in shown()


def test_without_permission_to_read_policies_protection_is_not_shown() -> None:
    spread = three_zones()
    view = ReadCluster(
        snapshot=ClusterSnapshot(), time=NOW, source="a test", left_out=frozenset({"clusterrebalancepolicies"})
    )
    assert protection_reports(view, spread, spread.groups.values()) is None
