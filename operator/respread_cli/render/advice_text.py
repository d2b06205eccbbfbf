"""The result of `respread advise` for people."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

import msgspec
import yaml
from rich.console import RenderableType
from rich.text import Text

from respread.api.words import listed, number_of
from respread_cli.report.advice_report import AdviceEntry, AdviceReport
from respread_cli.report.planned import pace_in_words

_COMMAND_COLUMNS: Final = 74
_DOMAINS_SHOWN: Final = 6


def advice_text(report: AdviceReport) -> Iterator[RenderableType]:
    """Yield a paragraph for each workload: where its pods are, the constraint, what it costs, and the command."""
    for each in report.workloads:
        yield Text(f"{each.namespace} {each.workload}", style="bold")
        yield Text(f"  {listed([f'{domain} {count}' for domain, count in each.counts.items()], _DOMAINS_SHOWN)}")
        yield Text(f"  {each.message}")
        if each.evictions:
            yield Text(f"  Within the default limits, evictions take {pace_in_words(each.pace)}.")
        yield Text()
        manifest = yaml.safe_dump({"topologySpreadConstraints": [each.constraint]}, sort_keys=False)
        yield Text("\n".join(f"    {line}" for line in manifest.splitlines()))
        yield Text()
        yield from _command(each)
        yield Text()
    yield Text(_summary(report))


def _command(each: AdviceEntry) -> Iterator[Text]:
    """Yield the command that applies the patch. Within quotes, the shell takes lines as they are."""
    yield Text(f"  kubectl patch {each.workload.full_name} -n {each.namespace} --type json -p '")
    patch = msgspec.json.format(msgspec.json.encode(each.patch), indent=0).decode()
    lines = wrap(patch, _COMMAND_COLUMNS, break_long_words=False, break_on_hyphens=False)
    yield Text("\n".join(f"    {line}" for line in lines) + "'")


def _summary(report: AdviceReport) -> str:
    looked = f"{number_of(report.looked_at, 'workload')} without constraints"
    if not report.workloads:
        return f"{looked}: none of them is in one zone or on one node by chance."
    return f"{looked}, {len(report.workloads)} of them with advice."
