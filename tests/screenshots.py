"""Makes the pictures of the page in docs/images in Chromium. The cluster is made up.

    python -m tests.screenshots [FOLDER [WIDTHxHEIGHT [dark]]]

With a folder, the pictures of all views are written there in that size.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from respread_cli.ui.events import EventSubject, OperatorEvent, ReadEvents
from tests.chromium import Tab, browser, find_chromium
from tests.policy_specs import policy_manifest
from tests.unit.cli.snapshots import ZONE, deployment_pods, manifest_of_node
from tests.unit.ui.served import Served, served

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
NODES_IN_ZONE: Final = 4
DEPLOYMENTS: Final[dict[str, tuple[int, int, int]]] = {
    "web": (5, 2, 1),
    "checkout": (4, 2, 2),
    "search": (3, 3, 2),
    "cart": (2, 2, 2),
    "payments": (3, 3, 3),
    "mail": (1, 1, 1),
}
"""Pods in each zone."""
HELD: Final = {"reports": (3, 0, 0)}
"""Pods that may not be evicted."""
POLICY: Final = policy_manifest("default", {"mode": "Enforce"}, uid="policy", generation=1)


class View(NamedTuple):
    """A view, and the elements that it has once it is complete."""

    path: str
    complete: str


VIEWS: Final = {
    "cluster": View("#/", ".rows .group"),
    "workload": View("#/workload/shop/deploy%2Fweb", ".arrow"),
    "what-if": View("#/what-if?workload=shop%2Fdeploy%2Fweb&replicas=3", ".outcome .constraint"),
}


def manifests() -> Iterator[dict[str, Any]]:
    """Yield a cluster of a shop: three zones, some Deployments, two of them skewed."""
    for zone in "abc":
        for number in range(1, NODES_IN_ZONE + 1):
            yield manifest_of_node(f"node-{zone}{number}", f"zone-{zone}")
    for namespace in ("shop", "office"):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {}}}
    yield POLICY
    for name, counts in DEPLOYMENTS.items():
        yield from _deployment(name, counts, "shop")
    for name, counts in HELD.items():
        yield from _deployment(name, counts, "office", {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})


def _deployment(
    name: str, counts: tuple[int, int, int], namespace: str, annotations: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    placed: dict[str, int] = {}
    for zone, count in zip("abc", counts, strict=True):
        for pod in range(count):
            node = f"node-{zone}{pod % NODES_IN_ZONE + 1}"
            placed[node] = placed.get(node, 0) + 1
    metadata = {"annotations": annotations} if annotations else None
    return deployment_pods(name, placed, namespace=namespace, metadata=metadata)


def events() -> ReadEvents:
    """Return the operator's Events."""
    note = f"Evicted pod web-1: {ZONE} zone-a holds more than maxSkew 1 allows, and the replacement goes to zone-c"
    subjects = EventSubject("Deployment", "shop", "web"), EventSubject("ClusterRebalancePolicy", "", "default")
    return ReadEvents(
        tuple(
            OperatorEvent(
                time=datetime(2026, 1, 1, 11, 58, tzinfo=UTC),
                warning=False,
                reason="EvictedForSpread",
                note=note,
                count=1,
                regarding=subject,
                related=EventSubject("Pod", "shop", "web-1"),
            )
            for subject in subjects
        )
    )


async def take_picture(tab: Tab, page: Served, name: str, file: Path) -> None:
    """Open a view, and write a picture of the window."""
    view = VIEWS[name]
    await tab.open("about:blank")
    await tab.open(page.url + view.path)
    await tab.wait_for(f"document.querySelector({json.dumps(view.complete)})")
    await asyncio.sleep(1)
    await tab.screenshot(file)


async def main() -> None:
    """Make the pictures."""
    program = find_chromium()
    if program is None:
        sys.exit("No Chromium is installed: `make browser` installs Debian's, as root")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    width, height = map(int, sys.argv[2].split("x")) if len(sys.argv) > 2 else (1180, 720)
    folder.mkdir(parents=True, exist_ok=True)
    async with served(list(manifests())) as page, browser(program) as tab:
        page.source.name, page.source.read_events = "context prod", events()
        page.change([])
        await tab.size(width, height, dark="dark" in sys.argv)
        for name in VIEWS:
            await take_picture(tab, page, name, folder / f"ui-{name}.webp")


if __name__ == "__main__":
    asyncio.run(main())
