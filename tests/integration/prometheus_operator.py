"""The kinds of the Prometheus operator, as its Go module defines them."""

from __future__ import annotations

from typing import Final

from respread_sandbox import Sandbox
from tests.go_programs import PROGRAMS, source_of
from tests.integration.definitions import wait_until_served

KINDS: Final = ("servicemonitors", "prometheusrules")


def define_monitoring(sandbox: Sandbox) -> None:
    """Let the API server serve ServiceMonitors and PrometheusRules."""
    folder = source_of(PROGRAMS["prometheus-operator"]) / "example" / "prometheus-operator-crd"
    for each in KINDS:
        sandbox.apply(folder / f"monitoring.coreos.com_{each}.yaml")
    sandbox.wait_for_definitions(*(f"{each}.monitoring.coreos.com" for each in KINDS))
    wait_until_served(sandbox, "monitoring.coreos.com/v1", *KINDS)
