"""The operator's messages in the output of `respread explain`."""

from __future__ import annotations

import json

from click.testing import CliRunner

from respread_cli.main import respread
from respread_sandbox import Sandbox


def operator_messages(sandbox: Sandbox, namespace: str, workload: str) -> str:
    """Return the messages about a workload's constraints; empty if they hold or the workload has no pods."""
    command = ["explain", workload, "-n", namespace, "-o", "json"]
    shown = CliRunner().invoke(respread, command, env={"KUBECONFIG": str(sandbox.kubeconfig)}).stdout
    report = json.loads(shown or '{"constraints": []}')
    words = [each.get("operator") or {} for each in report["constraints"]]
    return "; ".join(str(each.get("message")) for each in words)
