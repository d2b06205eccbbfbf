"""The pictures of docs/index.md and docs/constraints.md: pods in zones, and what the constraints say of them, as SVG.

    python -m tests.concept_pictures docs/images

`make concept-pictures` runs it. Respread itself counts the pods that are drawn, so the pictures show what it would say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from immutables import Map

from respread.spread.group import SpreadGroup
from tests.spreads import spread_of
from tests.worlds import cluster, constraint, node, pods, spec, taint

WIDTH: Final = 760
ROW_HEIGHT: Final = 74
ZONES: Final = ("zone-a", "zone-b", "zone-c")
ZONE_LEFT: Final = 190
ZONE_WIDTH: Final = 118
POD: Final = 17
C_EMPTY: Final = {"zone-a": 2, "zone-b": 2, "zone-c": 0}
VERDICT_LEFT: Final = ZONE_LEFT + len(ZONES) * (ZONE_WIDTH + 10) + 6
STYLE: Final = """\
text { font: 14px system-ui, sans-serif; fill: #24292f }
.small { font-size: 12px; fill: #57606a }
.zone { fill: none; stroke: #8c959f }
.uncounted { stroke-dasharray: 5 4 }
.pod { fill: #0969da }
.above { fill: #cf222e }
.violated { fill: #cf222e; font-weight: 600 }
.holds { fill: #1a7f37; font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .pod { fill: #4493f8 }
.above, .violated { fill: #f85149 } .holds { fill: #3fb950 } }"""


class Row(NamedTuple):
    """A line of a picture: pods in zones, and the constraint that counts them."""

    title: str
    below: str
    """A second line under the title."""

    counts: Mapping[str, int]
    """Pods by zone; a zone that is missing here has no node."""

    tainted: str = ""
    """The zone whose node has a taint that the pods do not tolerate."""

    node_selector: str = ""
    """What the pods' nodeSelector says of the label `disk`; only zone-a and zone-b have it as `ssd`."""

    constraint: Mapping[str, Any] = {}

    def group(self) -> SpreadGroup:
        """Return the spread group, counted by Respread."""
        nodes = [
            node(
                zone,
                zone,
                labels={"disk": "hdd" if zone == "zone-c" else "ssd"},
                taints=(taint("maintenance"),) if zone == self.tainted else (),
            )
            for zone in self.counts
        ]
        selector = Map(disk=self.node_selector) if self.node_selector else Map()
        of = spec(constraint(**self.constraint), node_selector=selector)
        (found,) = spread_of(cluster(nodes, pods(self.counts, of))).groups.values()
        return found


PICTURES: Final[Mapping[str, tuple[Row, ...]]] = {
    "skew": (
        Row("12 replicas", "as the scheduler places them", {"zone-a": 4, "zone-b": 4, "zone-c": 4}),
        Row("scaled down to 5", "nobody looks at zones", {"zone-a": 1, "zone-b": 1, "zone-c": 3}),
        Row("with Respread", "after one eviction", {"zone-a": 1, "zone-b": 2, "zone-c": 2}),
    ),
    "max-skew": (
        Row("maxSkew: 1", "", {"zone-a": 3, "zone-b": 2, "zone-c": 1}),
        Row("maxSkew: 2", "", {"zone-a": 3, "zone-b": 2, "zone-c": 1}, constraint={"max_skew": 2}),
    ),
    "min-domains": (
        Row("without minDomains", "zone-c has no node", {"zone-a": 2, "zone-b": 2}),
        Row("minDomains: 3", "the minimum counts as 0", {"zone-a": 2, "zone-b": 2}, constraint={"min_domains": 3}),
        Row(
            "minDomains: 3",
            "with a node in zone-c",
            {"zone-a": 2, "zone-b": 1, "zone-c": 1},
            constraint={"min_domains": 3},
        ),
    ),
    "node-policies": (
        Row("nodeTaintsPolicy: Ignore", "the default", C_EMPTY, tainted="zone-c"),
        Row("nodeTaintsPolicy: Honor", "zone-c does not count", C_EMPTY, "zone-c", "", {"node_taints_policy": "Honor"}),
        Row("nodeAffinityPolicy: Honor", "the default", C_EMPTY, node_selector="ssd"),
        Row("nodeAffinityPolicy: Ignore", "zone-c counts", C_EMPTY, "", "ssd", {"node_affinity_policy": "Ignore"}),
    ),
}


def pictures() -> dict[str, str]:
    """Return the SVG of each picture by its file name."""
    return {f"{name}.svg": _picture(rows) for name, rows in PICTURES.items()}


def _picture(rows: tuple[Row, ...]) -> str:
    height = len(rows) * ROW_HEIGHT
    about = "; ".join(f"{row.title} {_verdict(row.group())}" for row in rows)
    opening = f'<svg viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg" role="img"'
    return "\n".join(
        (
            f'{opening} aria-label="{escape(about)}">',
            f"<style>\n{STYLE}\n</style>",
            *(line for number, row in enumerate(rows) for line in _row(row, number * ROW_HEIGHT)),
            "</svg>\n",
        )
    )


def _row(row: Row, top: int) -> Iterator[str]:
    group = row.group()
    yield f'<text x="4" y="{top + 30}">{escape(row.title)}</text>'
    yield f'<text x="4" y="{top + 48}" class="small">{escape(row.below)}</text>'
    for place, zone in enumerate(ZONES):
        yield from _zone(row, group, zone, ZONE_LEFT + place * (ZONE_WIDTH + 10), top)
    kind = "violated" if group.violated else "holds"
    yield f'<text x="{VERDICT_LEFT}" y="{top + 30}" class="{kind}">{kind}</text>'
    yield f'<text x="{VERDICT_LEFT}" y="{top + 48}" class="small">{_verdict(group)}</text>'


def _zone(row: Row, group: SpreadGroup, zone: str, left: int, top: int) -> Iterator[str]:
    counted = group.all_counts()
    note = ""
    if zone not in row.counts:
        note = ", no node"
    elif zone == row.tainted:
        note = ", tainted"
    elif row.node_selector and zone == "zone-c":
        note = ", no ssd"
    kind = "zone" if zone in counted else "zone uncounted"
    yield f'<rect x="{left}" y="{top + 6}" width="{ZONE_WIDTH}" height="34" rx="5" class="{kind}"/>'
    yield f'<text x="{left + 2}" y="{top + 57}" class="small">{zone}{note}</text>'
    allowed = group.minimum + group.key.max_skew
    for number in range(row.counts.get(zone, 0)):
        above = " above" if number >= allowed else ""
        x = left + 8 + number * (POD + 8)
        yield f'<rect x="{x}" y="{top + 14}" width="{POD}" height="{POD}" rx="3" class="pod{above}"/>'


def _verdict(group: SpreadGroup) -> str:
    return f"skew {group.skew}, maxSkew {group.key.max_skew}"


def main() -> None:
    """Write the pictures into a folder."""
    folder = Path(sys.argv[1])
    for name, text in pictures().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
