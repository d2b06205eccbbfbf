"""The page in Chromium: each view works, also by keyboard and while the cluster changes, and axe-core finds nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from respread_cli.main import respread
from respread_cli.read.following import Lost
from tests.chromium import Tab, axe_core, browser, chromium
from tests.unit.cli.snapshots import snapshot_of
from tests.unit.ui.clusters import pending_pods, web, zones
from tests.unit.ui.served import Served, served

MARKUP = '<img src=x onerror="window.hacked=1">'
CLUSTER = [
    *zones("a", "b", "c"),
    *web(4, 1, 1),
    *web(2, 2, 2, name="even"),
    *web(3, 1, 0, name="soft", when="ScheduleAnyway"),
    *web(3, 0, 0, name="held", metadata={"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}),
]
VIEWS = {
    "cluster": "#/",
    "workload": "#/workload/default/deploy%2Fweb",
    "what-if": "#/what-if?workload=default%2Fdeploy%2Fweb&replicas=3",
}
SHOWN = {"cluster": ".rows .group", "workload": ".constraint", "what-if": ".outcome .constraint"}
"""The elements that a complete view shows."""
AXE = """
axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']}).then((result) =>
  result.violations.map((each) => `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3).join(" ")}`))
"""
FITS = "document.documentElement.scrollWidth <= innerWidth"
CUT = """
[...document.querySelectorAll("main p, main h1, main h2")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .concat([...document.querySelectorAll(".happens, .because")]
    .filter((each) => each.scrollHeight > each.clientHeight + 1))
  .map((each) => each.textContent)
"""
"""Sentences that are not shown completely, and remedies that are cut."""
MANY_ROWS = """
import(new URL("live.js", location.href)).then(async ({ Store, worstFirst }) => {
  const row = (id, skew) => ({ id, group: {
    violated: skew > 1, whenUnsatisfiable: "DoNotSchedule", maxSkew: 1, skew, excess: 0, namespace: `n-${id % 7}`,
    workloads: [{ kind: "Deployment", name: `w-${id}` }], topologyKey: "zone", selector: "", counts: {} } });
  const store = new Store();
  const rows = Array.from({ length: 3000 }, (_, id) => row(id, id % 3)).sort(worstFirst);
  store.begin({ version: 1, overview: { rows }, timeline: { points: [], happenings: [] } });
  const change = (version, from, skew) => store.apply({ change: {
    version, fields: {}, gone: [from], rows: Array.from({ length: 1200 }, (_, at) => row(from + 1 + at, skew)) } });
  change(2, 0, 2);
  await new Promise(requestAnimationFrame);
  change(3, 600, 0);
  change(4, 2400, 3);
  while (store.untold || store.overview.rows.length !== store.rows.size) await new Promise(requestAnimationFrame);
  const expected = [...store.rows.values()].sort(worstFirst);
  return expected.filter((each, at) => store.overview.rows[at] !== each).map((each) => each.id);
})
"""
"""The rows in a wrong position after many have changed, some of them while others were being merged."""
NODES_READ = "performance.getEntriesByType('resource').filter((each) => each.name.endsWith('api/nodes')).length"
TAB, ENTER, ARROW_LEFT = ("Tab", 9), ("Enter", 13), ("ArrowLeft", 37)


@pytest.fixture(scope="module")
def program() -> str:
    return chromium()


@asynccontextmanager
async def opened(program: str, cluster: list[dict[str, object]] = CLUSTER) -> AsyncIterator[tuple[Tab, Served]]:
    async with served(cluster) as page, browser(program) as tab:
        await tab.size(1280, 900)
        await tab.open(page.url)
        await tab.wait_for("document.querySelector('.rows .group')")
        yield tab, page
        assert tab.problems == []
        assert [url for url in tab.requested if not url.startswith((page.url, "data:"))] == []


async def rows(tab: Tab) -> list[str]:
    found: list[str] = await tab.run(
        "[...document.querySelectorAll('.rows .group .workload a')].map((a) => a.textContent)"
    )
    return found


async def test_the_worst_group_is_first_and_filters_find_the_others(program: str) -> None:
    async with opened(program) as (tab, _):
        assert (await tab.text("h1")).startswith("✗ 3 of 4 constraints are violated")
        assert await rows(tab) == ["deploy/held", "deploy/web", "deploy/soft", "deploy/even"]
        remedy = "ProtectedPod remove the annotation cluster-autoscaler.kubernetes.io/safe-to-evict"
        assert await tab.text(".rows .group .happens") == remedy
        assert await tab.text(".rows .state-Holds .happens") == "\u2013"
        await tab.run("document.getElementById('search').focus()")
        await tab.send("Input.insertText", text="ev")
        await tab.wait_for("document.querySelectorAll('.rows .group').length === 1")
        assert await rows(tab) == ["deploy/even"]
        assert await tab.run("document.activeElement.id") == "search"
        await tab.run("document.getElementById('search').value = ''")
        await tab.run("document.getElementById('search').dispatchEvent(new Event('input'))")
        await tab.run("document.getElementById('state-Blocked').click()")
        assert await rows(tab) == ["deploy/held"]


async def test_a_workload_is_reached_by_keyboard_and_shows_its_moves(program: str) -> None:
    async with opened(program) as (tab, _):
        for _ in range(40):
            await tab.press(*TAB)
            if await tab.run("document.activeElement.textContent") == "deploy/web":
                break
        await tab.press(*ENTER)
        assert "zone-a has 4 pods, but only 2 are allowed" in await tab.text(".verdict")
        arrows = await tab.wait_for("document.querySelectorAll('path.arrow').length")
        assert arrows >= 2  # two pods, each to one domain or two
        assert await tab.run("document.querySelectorAll('.pod.moves').length") == 2
        assert await tab.run("document.querySelectorAll('.pod').length") == 6
        assert await tab.run("document.querySelectorAll('.curve-figure .curve').length") == 3
        await tab.run("document.querySelector('.pod.moves').click()")
        name = await tab.run("document.querySelector('.pod.moves').dataset.pod")
        assert await tab.run("document.activeElement.querySelector('code').textContent") == (
            f"kubectl describe pod {name} -n default"
        )


async def test_what_if_works_by_keyboard_with_undo_and_shows_the_command(program: str) -> None:
    async with opened(program) as (tab, _):
        await tab.run(f"location.hash = {json.dumps(VIEWS['what-if'])}")
        command = "document.getElementById('command')?.textContent"
        await tab.wait_for(f"{command} === 'respread simulate --scale default/deploy/web=3'")
        await tab.run("document.querySelector('.slider input').focus()")
        await tab.press(*ARROW_LEFT)
        await tab.wait_for(f"{command} === 'respread simulate --scale default/deploy/web=2'")
        await tab.run("document.getElementById('drain-node-b').click()")
        await tab.wait_for(f"{command} === 'respread simulate --drain node-b --scale default/deploy/web=2'")
        await tab.run("document.getElementById('undo').click()")
        await tab.wait_for(f"{command} === 'respread simulate --scale default/deploy/web=2'")
        await tab.run("document.getElementById('redo').click()")
        await tab.wait_for(f"{command}.includes('--drain node-b')")
        assert "--drain" not in await tab.run("location.href")


async def test_the_namespace_that_is_worst_is_named_and_can_be_chosen(program: str) -> None:
    named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    shop = [named, *web(6, 0, 0, namespace="shop"), *web(2, 2, 2, name="even", namespace="shop")]
    async with opened(program, [*zones("a", "b", "c"), *web(3, 1, 1), *shop]) as (tab, _):
        said = await tab.text("#teams summary")
        assert said == "Namespaces: shop is worst, with 1 of 2 constraints violated"
        assert await tab.text("#zones summary") == "Zones: zone-a has 6 pods too many"
        await tab.run("document.querySelector('#zones summary').click()")
        squares = "[...document.querySelectorAll('#zones .square')].map((each) => each.textContent).join()"
        await tab.wait_for(f"{squares} === '11,3,3'")
        await tab.run("document.querySelector('#teams summary').click()")
        assert await tab.run("[...document.querySelectorAll('#teams tbody tr')].map((each) => each.innerText)") == [
            "shop\t1\t0\t2\t5\t5\t4",
            "default\t1\t0\t1\t1\t1\t1",
        ]
        await tab.run("document.getElementById('team-shop').click()")
        await tab.wait_for("document.querySelectorAll('.rows .group').length === 2")
        await tab.run("document.getElementById('team-shop').click()")
        await tab.wait_for("document.querySelectorAll('.rows .group').length === 3")


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1440, False)])
async def test_pods_without_a_node_are_rows_with_the_reason_for_each_constraint(
    program: str, width: int, *, dark: bool
) -> None:
    nodes = [*zones("a"), *zones("b", spec={"unschedulable": True})]
    other = pending_pods("other", 1, nodeSelector={"disk": "ssd"})
    cluster = [*nodes, *web(1, 0), *pending_pods("web", 2), *other]
    lines = "[...document.querySelectorAll('#pending tbody tr')].map((each) => each.innerText)"
    source = axe_core()
    async with opened(program, cluster) as (tab, page):
        await tab.size(width, 800, dark=dark)
        assert (await tab.text(".rows .group .workload")).endswith("2 Pending")
        await tab.run("document.getElementById('show-pending').click()")
        assert await tab.text("#pending summary") == "3 pods without a node"
        await tab.wait_for("document.querySelectorAll('#pending tbody tr').length === 2")
        first, second = await tab.run(lines)
        assert first.startswith("deploy/web default")
        assert "zone constraint: 1 of the nodes would break topology.kubernetes.io/zone (node-a: " in first
        assert "NodeUnschedulable: 1 of the nodes are cordoned (node-b: " in first
        assert "NodeAffinity: 1 of the nodes do not match its nodeSelector or affinity" in second
        await tab.run(source + ";0")
        assert await tab.run(AXE) == []
        assert await tab.run(FITS)
        assert await tab.run(CUT) == []
        page.delete(pending_pods("web", 2))
        await tab.wait_for("document.querySelectorAll('#pending tbody tr').length === 1")
        page.delete(other)
        await tab.wait_for("document.getElementById('pending').hidden")


async def test_a_lost_zone_shows_what_workloads_lose_and_hides_what_holds(program: str) -> None:
    pinned = web(3, 0, 0, name="index")
    for pod in pinned:
        pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "zone-a"}
    async with opened(program, [*zones("a", "b", "c"), *pinned, *web(2, 2, 2)]) as (tab, _):
        await tab.run("location.hash = '#/what-if'")
        removed = "removeDomain-topology.kubernetes.io/zone=zone-a"
        await tab.wait_for(f"document.getElementById('{removed}')")
        await tab.run(f"document.getElementById('{removed}').click()")
        await tab.wait_for("document.querySelector('.outcome h2.bad')")
        assert "1 workload would be harmed, 3 pods missing for good." in await tab.text(".outcome h2")
        lost = await tab.text(".outcome tbody tr")
        assert lost.startswith("deploy/index\tdefault\tno pod left\t3\t0\t0\t")
        assert "deploy/index" in await tab.text(".outcome .constraint.violated h3")
        assert await tab.text("#constraints-that-hold summary") == "1 constraint that would hold"


async def test_what_if_names_the_quota_that_refuses_pods(program: str) -> None:
    status = {"hard": {"pods": "6"}, "used": {"pods": "5"}}
    metadata = {"name": "tight", "namespace": "default"}
    quota: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {},
        "status": status,
    }
    async with opened(program, [*zones("a", "b", "c"), *web(2, 2, 1), quota]) as (tab, _):
        await tab.run("location.hash = '#/what-if?workload=default%2Fdeploy%2Fweb&replicas=7'")
        await tab.wait_for("document.querySelector('.outcome h2.bad')")
        assert await tab.text(".outcome .quota") == (
            "ResourceQuota tight of namespace default refuses some of the new pods: they take 2 of pods, and 5 of "
            "6 are used."
        )
        await tab.run("location.hash = '#/what-if?workload=default%2Fdeploy%2Fweb&replicas=6'")
        await tab.wait_for("document.querySelector('.outcome h2.good')")
        assert await tab.run("document.querySelector('.outcome .quota')") is None


async def test_what_if_on_a_narrow_window_brings_the_outcome_into_view(program: str) -> None:
    async with opened(program) as (tab, page):
        await tab.size(360, 500)
        await tab.run("location.hash = '#/what-if'")
        await tab.wait_for("document.getElementById('drain-node-b')")
        top = "document.querySelector('.outcome').getBoundingClientRect().top"
        assert await tab.run(f"{top} > innerHeight")
        await tab.run("document.getElementById('workload').focus()")
        await tab.send("Input.insertText", text="WEB")
        await tab.wait_for("document.querySelectorAll('#workload-names option').length === 1")
        page.change(zones("d"))
        await tab.wait_for(f"{NODES_READ} > 1")
        assert await tab.run("document.activeElement.id + document.activeElement.value") == "workloadWEB"
        await tab.run("document.activeElement.dispatchEvent(new Event('change'))")
        await tab.wait_for("document.activeElement.id === 'replicas-default/deploy/web'")
        await tab.wait_for("document.querySelectorAll('.nodes li').length === 4")
        await tab.press(*ARROW_LEFT)
        await tab.wait_for(f"{top} < innerHeight / 2 && document.querySelector('.outcome .constraint')")
        await tab.run("document.querySelector('.to-controls').click()")
        await tab.wait_for(f"{top} > innerHeight / 2")


async def test_another_context_is_chosen_in_the_page(program: str) -> None:
    west = {"west": [*zones("a", "b"), *web(2, 2, name="other")]}
    async with served(CLUSTER, others=west) as page, browser(program) as tab:
        await tab.open(page.url)
        await tab.wait_for("document.getElementById('context')")
        choose = "document.getElementById('context')"
        await tab.run(f"{choose}.value = 'west'; {choose}.dispatchEvent(new Event('change'))")
        await tab.wait_for("document.querySelector('.rows')?.textContent.includes('deploy/other')")
        await tab.wait_for("document.getElementById('connection').textContent === '● live'")
        assert await rows(tab) == ["deploy/other"]
        await tab.run(f"{choose}.value = 'broken'; {choose}.dispatchEvent(new Event('change'))")
        await tab.wait_for("document.getElementById('announcer').textContent.includes('broken')")
        assert await tab.wait_for(f"{choose}.disabled ? '' : {choose}.value") == "west"


async def test_rows_that_change_are_sorted_among_the_others_however_many_they_are(program: str) -> None:
    async with opened(program) as (tab, _):
        assert await tab.run(MANY_ROWS) == []


async def test_changes_appear_and_lost_connections_are_shown_until_they_return(program: str) -> None:
    async with opened(program) as (tab, page):
        page.change(web(6, 1, 1))
        await tab.wait_for("document.querySelector('.group .skew b').textContent === '5'")
        assert (await rows(tab))[0] == "deploy/web"
        page.delete(web(6, 1, 1)[1:5])
        await tab.wait_for("document.querySelector('.happenings')?.textContent.includes('deploy/web')")
        page.change([*web(1, 1, 1, name="added"), *web(3, 1, 1, name="even")])
        await tab.wait_for("document.querySelectorAll('.rows .group').length === 5")
        merged = await rows(tab)
        await tab.open("about:blank")
        await tab.open(page.url)
        await tab.wait_for("document.querySelectorAll('.rows .group').length === 5")
        assert merged == await rows(tab)
        page.lose(Lost(datetime.now(UTC), "it can't be reached."))
        await tab.wait_for("document.getElementById('connection').textContent.includes('No connection to the cluster')")
        page.lose(None)
        await tab.wait_for("document.getElementById('connection').textContent === '● live'")


async def test_the_page_reports_a_stopped_server_and_reconnects(program: str) -> None:
    async with browser(program) as tab:
        async with served(CLUSTER) as page:
            url = page.url
            await tab.open(url)
            await tab.wait_for("document.getElementById('connection').textContent === '● live'")
        await tab.wait_for("document.getElementById('connection').textContent.includes('No connection to respread ui')")
        async with served([*CLUSTER, *web(5, 0, 0, name="new")], port=int(url.split(":")[2].split("/")[0])):
            await tab.wait_for("document.getElementById('connection').textContent === '● live'")
            await tab.wait_for("document.querySelector('.rows')?.textContent.includes('deploy/new')")


async def test_names_with_markup_are_shown_as_text(program: str) -> None:
    hostile = web(3, 1, 0)
    for pod in hostile:
        pod["metadata"]["name"] += MARKUP
        pod["metadata"]["ownerReferences"][0]["name"] = f"{MARKUP}-1"
    nodes = zones("a", "b", "c", spec={"taints": [{"key": MARKUP, "value": MARKUP, "effect": "PreferNoSchedule"}]})
    async with opened(program, [*nodes, *hostile]) as (tab, _):
        assert await tab.run("document.querySelector('.rows a').textContent") == f"deploy/{MARKUP}"
        await tab.run("document.querySelector('.rows a').click()")
        await tab.wait_for("document.querySelector('.constraint')")
        assert MARKUP in await tab.text("h1")
        await tab.run("document.querySelector('a.button').click()")
        await tab.wait_for("document.querySelector('.slider input')")
        assert await tab.run("window.hacked === undefined && document.querySelectorAll('main img').length === 0")


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(360, False, id="360-light"),
        pytest.param(1440, True, id="1440-dark"),
        pytest.param(360, True, id="360-dark", marks=pytest.mark.long),
        pytest.param(1440, False, id="1440-light", marks=pytest.mark.long),
    ],
)
async def test_axe_finds_no_accessibility_problem(program: str, width: int, dark: bool) -> None:
    source = axe_core()
    async with opened(program) as (tab, _):
        await tab.size(width, 800, dark=dark)
        await tab.run(source + ";0")
        for view, path in VIEWS.items():
            await tab.run(f"location.hash = {json.dumps(path)}")
            await tab.wait_for(f"document.querySelector({json.dumps(SHOWN[view])})")
            found = await tab.run(AXE)
            assert found == [], view
            assert await tab.run(FITS), view
            assert await tab.run(CUT) == [], view


REPORTS = {
    "skew": (["skew"], "3 of 4 constraints violated"),
    "plan": (["plan"], "2 evictions would restore"),
    "explain": (["explain", "deploy/web"], "zone-a has 4 pods"),
    "simulate": (["simulate", "--remove-domain", "zone=zone-a"], "What if: node-a gone"),
    "domain-loss": (["simulate", "--each-domain", "zone"], "The loss of 1 zone of 3 would harm workloads."),
}


def report_file(folder: Path, arguments: list[str]) -> Path:
    """Return the file that a command writes."""
    done = CliRunner().invoke(respread, [*arguments, "--snapshot", str(snapshot_of(folder, CLUSTER)), "-o", "html"])
    assert done.exit_code == 0, done.output
    file = folder / "report.html"
    file.write_text(done.stdout, encoding="utf-8")
    return file


@pytest.mark.parametrize(("arguments", "said"), REPORTS.values(), ids=REPORTS)
async def test_a_report_is_one_file_that_requests_nothing(
    program: str, tmp_path: Path, arguments: list[str], said: str
) -> None:
    file = report_file(tmp_path, arguments)
    async with browser(program) as tab:
        await tab.open(file.as_uri())
        await tab.wait_for("document.querySelector('main section')")
        assert said in await tab.run("document.querySelector('main').innerText")
        assert tab.problems == []
        assert [url for url in tab.requested if not url.startswith(("file:", "data:"))] == []
        assert sum(url.startswith("file:") for url in tab.requested) == 1


@pytest.mark.parametrize(
    "name",
    ["explain", "simulate", "domain-loss", *(pytest.param(each, marks=pytest.mark.long) for each in ("skew", "plan"))],
)
async def test_axe_finds_nothing_in_a_report(program: str, tmp_path: Path, name: str) -> None:
    source, file = axe_core(), report_file(tmp_path, REPORTS[name][0])
    async with browser(program) as tab:
        await tab.open(file.as_uri())
        await tab.wait_for("document.querySelector('main section')")
        await tab.run(source + ";0")
        for width, dark in ((360, False), (1440, True)):
            await tab.size(width, 800, dark=dark)
            assert await tab.run(AXE) == [], width
            assert await tab.run(FITS), width
