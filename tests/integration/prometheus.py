"""The shipped rules and dashboard, and a real Prometheus that scrapes a real operator."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from tests.processes import wait_until
from tests.prometheus_programs import require

MONITORING: Final = Path(__file__).parents[2] / "manifests" / "components" / "monitoring"
RULES: Final[dict[str, Any]] = yaml.safe_load((MONITORING / "prometheus-rule.yaml").read_text(encoding="utf-8"))["spec"]
DASHBOARD: Final[dict[str, Any]] = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
PANELS: Final = {each["title"]: each for each in DASHBOARD["panels"] if each["type"] != "row"}

Series: TypeAlias = list[dict[str, Any]]


class Prometheus:
    """A running Prometheus that scrapes one operator."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def ready(self) -> bool:
        try:
            self._read("/-/ready")
        except (OSError, LookupError):
            return False
        return True

    def _read(self, path: str) -> bytes:
        """Return the answer. Raises LookupError until it listens."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            body: bytes = answer.read()
        return body

    @property
    def address(self) -> str:
        """Where it listens. Raises LookupError until the log shows it."""
        found: list[str] = re.findall(r'msg="Listening on".* address=(\S+)', self._log.read_text(encoding="utf-8"))
        return found[0]

    def query(self, expression: str) -> Series:
        found: Series = self._get("query", query=expression)["result"]
        return found

    def panel(self, title: str) -> Series:
        """Return the data of all targets of a panel, for every cluster and namespace."""
        return [each for target in PANELS[title]["targets"] for each in self.query(_for_all(target["expr"]))]

    def panel_between(self, title: str, begin: float, end: float) -> Iterator[tuple[str, Series]]:
        """Yield the legend and the data of each target of a panel, in Unix time with a value for each second."""
        for target in PANELS[title]["targets"]:
            asked = {"query": _for_all(target["expr"]), "start": begin, "end": end, "step": 1}
            yield target.get("legendFormat", ""), self._get("query_range", **asked)["result"]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: object) -> Any:
        return json.loads(self._read(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]


@contextmanager
def scraping(target: str, folder: Path, **scrape: Any) -> Iterator[Prometheus]:
    """Run Prometheus with the rules while the context lasts, as that of a fleet; `scrape` says how it asks."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES), encoding="utf-8")
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "respread",
                "honor_labels": True,
                **scrape,
                "static_configs": [{"targets": [target], "labels": {"cluster": "east", "pod": "respread-0"}}],
            }
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    command: list[str | Path] = [
        require("prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as process,
    ):
        try:
            prometheus = Prometheus(folder / "prometheus.log")
            wait_until(prometheus.ready, "Prometheus to be ready")
            yield prometheus
        finally:
            process.terminate()


def _for_all(expression: str) -> str:
    """Return a query of the dashboard for every cluster and namespace."""
    variables = {"$__rate_interval": "1m", "$cluster": ".*", "$namespace": ".*"}
    return re.sub(r"\$\w+", lambda name: variables[name[0]], expression)
