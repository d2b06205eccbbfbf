"""promtool tests the alerts and recording rules. Every alert has a runbook, and the dashboard has descriptions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.integration.prometheus import DASHBOARD, RULES
from tests.prometheus_programs import require

ROOT: Final = Path(__file__).parents[3]
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
ALERTS: Final = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules as Prometheus reads them."""
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(RULES), encoding="utf-8")
    return file


def promtool(*arguments: object) -> str:
    done = subprocess.run(
        [require("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules(rules: Path) -> None:
    assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", rules)


def test_alerts_fire_only_for_the_affected_cluster(rules: Path) -> None:
    shutil.copy(Path(__file__).with_name("alerts.yaml"), rules.with_name("alerts.yaml"))
    promtool("test", "rules", rules.with_name("alerts.yaml"))


def test_every_alert_has_a_promtool_test() -> None:
    tried = (Path(__file__).with_name("alerts.yaml")).read_text(encoding="utf-8")
    assert {alert for alert in ALERTS if alert not in tried} == set()


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_runbook(alert: str) -> None:
    url = ALERTS[alert]["annotations"]["runbook_url"]
    assert url == f"https://github.com/respread/respread/blob/main/docs/runbooks/{alert}.md"
    text = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8")
    assert re.findall(r"^#+ (.*)$", text, re.MULTILINE) == [alert, "Meaning", "Impact", "Diagnosis", "Mitigation"]
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (RUNBOOKS / target).exists()
    assert f"[{alert}]({alert}.md)" in (RUNBOOKS / "README.md").read_text(encoding="utf-8")


def test_every_runbook_belongs_to_an_alert() -> None:
    assert {each.stem for each in RUNBOOKS.glob("*.md")} == {*ALERTS, "README"}


def test_the_dashboard_has_rows_and_a_description_of_each_panel() -> None:
    panels = DASHBOARD["panels"]
    assert [each["title"] for each in panels if each["type"] == "row"] == ["State", "Evictions", "Prevention", "Health"]
    drawn = [each for each in panels if each["type"] != "row"]
    assert all(each["description"] for each in drawn)
    assert len({each["id"] for each in panels}) == len(panels)
    for each in (target for panel in drawn for target in panel["targets"]):
        assert 'cluster=~"$cluster"' in each["expr"], each["expr"]
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"datasource", "cluster", "namespace"}
    for link in DASHBOARD["links"]:
        page = link["url"].removeprefix("https://github.com/respread/respread/blob/main/")
        assert (ROOT / page).exists()
