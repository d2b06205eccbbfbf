"""Only evictions, which shows how fast the cluster itself replaces pods.

    python -m bench.busy_plain KUBECONFIG < ORDERS

Reads which pods to evict, requests the eviction of each, sixteen at a time, and waits for a signal. With limits, an
eviction is requested as soon as they have room for it, and again if the API server refuses it.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bench.judge import Key, key_of
from bench.limits import AtOnce
from respread_sandbox.api import ApiError, SandboxApi
from respread_sandbox.pod_watch import PodWatch, WatchedPod

SIXTEEN: Final = 16
POLL_SECONDS: Final = 0.1


class Orders(msgspec.Struct):
    """What the process reads."""

    victims: list[WatchedPod]
    at_once: AtOnce | None = None
    """None: all at once."""


def main() -> int:
    """Evict the pods that standard input names."""
    api = SandboxApi(Path(sys.argv[1]))
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    with ThreadPoolExecutor(SIXTEEN) as pool:
        if orders.at_once is None:
            list(pool.map(partial(_evict, api), orders.victims))
        else:
            _evict_within(orders.at_once, api, orders.victims, pool)
    signal.pause()
    return 0


def _evict_within(at_once: AtOnce, api: SandboxApi, victims: list[WatchedPod], pool: ThreadPoolExecutor) -> None:
    watch = PodWatch(api, label_selector="app")
    wanted = _ready(watch, set())
    left, evicted = victims, set[str]()
    while left:
        in_flight = wanted - _ready(watch, evicted)
        chosen, later = [], []
        for pod in left:
            if at_once.has_room(in_flight, key_of(pod)):
                in_flight[key_of(pod)] += 1
                chosen.append(pod)
            else:
                later.append(pod)
        done = list(pool.map(partial(_is_evicted, api), chosen))
        evicted.update(pod.metadata.uid for pod, made in zip(chosen, done, strict=True) if made)
        left = [pod for pod, made in zip(chosen, done, strict=True) if not made] + later
        time.sleep(POLL_SECONDS)


def _ready(watch: PodWatch, evicted: set[str]) -> Counter[Key]:
    pods = [life.pod for life in watch.lives() if not life.gone]
    return Counter(key_of(pod) for pod in pods if pod.ready and not pod.terminating and pod.metadata.uid not in evicted)


def _is_evicted(api: SandboxApi, pod: WatchedPod) -> bool:
    """Request the eviction of a pod, and return whether it was made."""
    try:
        _evict(api, pod)
    except ApiError:
        return False
    return True


def _evict(api: SandboxApi, pod: WatchedPod) -> None:
    namespace, name = pod.metadata.namespace, pod.metadata.name
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)


if __name__ == "__main__":
    sys.exit(main())
