"""Only evictions, which shows how fast the cluster itself replaces pods.

    python -m bench.busy_plain KUBECONFIG < VICTIMS

Reads a JSON list of [namespace, pod], requests the eviction of each, sixteen at a time, and waits for a signal.
"""

from __future__ import annotations

import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from respread_sandbox.api import SandboxApi

AT_ONCE: Final = 16


def main() -> int:
    """Evict the pods that standard input names."""
    api = SandboxApi(Path(sys.argv[1]))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda victim: evict(api, *victim), json.load(sys.stdin)))
    signal.pause()
    return 0


def evict(api: SandboxApi, namespace: str, pod: str) -> None:
    """Request the eviction of a pod."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": pod}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)


if __name__ == "__main__":
    sys.exit(main())
