"""Generated pages: options of every command, fields and examples of policies, metrics, and the values of the chart.

    python -m tests.reference

`make reference` runs it. A test checks that the pages are current.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from respread.api.schema import custom_resource_definition
from respread.program.command_line import CommandWithExamples
from respread.telemetry.gauges import PLAN_GAUGES, MetricDefinition
from respread.telemetry.metrics import OF_EVICTIONS, OF_THE_OPERATOR
from respread_cli.main import COMMANDS, load
from tests.chart_values import VALUES, values_table
from tests.generated_parts import GeneratedParts

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
PARTS: Final = GeneratedParts("make reference")
EXAMPLES: Final = DOCS / "examples"
TRYING_OUT: Final = ("demo", "sandbox")
"""Commands that run no cluster of a user: docs/sandbox.md describes them."""
MORE: Final = {
    "constraints.expectedDomains[].provision": "autoscalers.md#a-zone-without-a-node",
    "limits.failuresInARow": "eviction.md#pausing-a-policy",
    "victims.trustedControllers": "workloads.md",
    "prevention.costsOfOthers": "prevention.md#a-second-writer",
    "respread_spread_blocked": "policy.md#reasons",
    "respread_prevention_contested_replica_sets": "prevention.md#a-second-writer",
    "respread_spread_groups_unworkable": "audit.md",
    "respread_permissions_missing": "security.md#missing-permissions",
    "respread_remaining_seconds": "eviction.md#how-long-the-rest-takes",
    "respread_evictions_total": "eviction.md#answers",
    "respread_eviction_outcomes_total": "eviction.md#in-flight",
    "respread_other_evictions_total": "eviction.md#another-descheduler",
    "respread_prevention_evictions_avoided_total": "ranks.md#metrics",
    "respread_room_requests_total": "autoscalers.md#a-zone-without-a-node",
}
"""The pages that say more about fields of policies and metrics than their descriptions, which are no Markdown."""
_FORMS: Final = {
    r"must be a duration .*, from (\S+) to (\S+)": "duration, `{}` to `{}`",
    r"must be a number from (\d+) to (\d+), or a percentage .*": "integer, {} to {}, or `1%` to `100%`",
    r"must be a cron expression of five fields.*": "cron expression",
}
"""How the type of a field is said whose rule has this message."""
SHARED: Final = 3
"""An option of as many commands, with the same help, is described once."""
ORDER: Final = (
    "look-first",
    "start-with-some",
    "at-night",
    "one-team",
    "leave-alone",
    "prevent",
    "soft",
    "zones-only",
    "databases",
    "empty-zone",
    "other-controllers",
)
"""The examples of policies in the order of the page: the most common ones are first."""


def pages() -> dict[Path, str]:
    """Return the current content of each page.

    Raises:
        ValueError: a page has no place for a generated part.
    """
    generated = {
        DOCS / "command-line-options.md": {"command-line-options": options()},
        DOCS / "examples.md": {"examples": examples()},
        DOCS / "policy.md": {"fields": fields_table()},
        DOCS / "metrics.md": {"spread": metrics_table(PLAN_GAUGES), "evictions": metrics_table(OF_EVICTIONS)},
        DOCS / "operator-metrics.md": {"operator": metrics_table(OF_THE_OPERATOR)},
        VALUES.with_name("README.md"): {"chart-values": values_table()},
    }
    found = {}
    for path, parts in generated.items():
        found[path] = path.read_text(encoding="utf-8")
        for name, content in parts.items():
            found[path] = PARTS.write(found[path], name, content)
    return found


def fields_table() -> str:
    """Return the table of the fields of a policy's spec."""
    (version,) = custom_resource_definition("ClusterRebalancePolicy")["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for path, node, required in _fields(spec):
        meaning, _, default = node["description"].partition(" Default: ")
        default = default.removesuffix(".") or ("required" if required else _default(node))
        rows.append(f"| `{path}` | {_type(node)} | {default} | {_linked(path, meaning)} |")
    return "\n".join([*rows, ""])


def _fields(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yield the path of every field, its schema, and whether it is required; not those within label selectors."""
    for name, each in node["properties"].items():
        at = f"{path}.{name}".removeprefix(".")
        yield at, each, name in node.get("required", ())
        inner, suffix = (each["items"], "[]") if each.get("type") == "array" else (each, "")
        if "properties" in inner and "matchLabels" not in inner["properties"]:
            yield from _fields(inner, at + suffix)


def _type(node: Mapping[str, Any]) -> str:
    """Return which values a field takes: a type, and its bounds."""
    bounds = f", {node['minimum']} to {node['maximum']}" if "maximum" in node else ""
    for each in node.get("x-kubernetes-validations", ()):
        for pattern, form in _FORMS.items():
            if found := re.fullmatch(pattern, each["message"]):
                return form.format(*found.groups())
    if "enum" in node:
        return ", ".join(f"`{each}`" for each in node["enum"])
    if node.get("type") == "array":
        each = "objects" if "properties" in node["items"] else _type(node["items"]).replace("string", "strings")
        at_least = f"{node['minItems']} to " if "minItems" in node else "up to "
        return f"{'set' if node['x-kubernetes-list-type'] == 'set' else 'list'} of {each}; {at_least}{node['maxItems']}"
    if "matchLabels" in node.get("properties", ()):
        return "label selector"
    return f"{node['type']}{bounds}"


def _default(node: Mapping[str, Any]) -> str:
    if "default" in node:
        nested = node.get("type") == "object" and "matchLabels" not in node["properties"]
        return "" if nested else f"`{json.dumps(node['default']).replace(chr(34), '')}`"
    return "empty" if node.get("type") == "array" else "none"


def metrics_table(metrics: Iterable[MetricDefinition]) -> str:
    """Return the table of some metrics."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {_linked(each.name, each.documentation)} |"
        for each in metrics
    ]
    return "\n".join([*rows, ""])


def _linked(name: str, meaning: str) -> str:
    """Return what is said about a field or metric, with the page that says more."""
    return f"{meaning} [More]({MORE[name]})." if name in MORE else meaning


def options() -> str:
    """Return the options that several commands share, and for each command its usage, help text and other options."""
    commands = [
        each
        for entry in COMMANDS
        if entry.name not in TRYING_OUT
        for each in _commands(load(entry), f"respread {entry.name}")
    ]
    counted = Counter(option for command, typed in commands for option in _options(command, typed))
    shared = {option for option, times in counted.items() if times >= SHARED}
    lines = ["", "## Common options", "", *_table(each for each in counted if each in shared)]
    for command, typed in commands:
        lines += _command(command, typed, shared)
    return "\n".join(lines)


def _commands(command: click.Command, typed: str) -> Iterator[tuple[click.Command, str]]:
    if not isinstance(command, click.Group):
        yield command, typed
        return
    for name, each in command.commands.items():
        yield from _commands(each, f"{typed} {name}")


def _options(command: click.Command, typed: str) -> list[tuple[str, str]]:
    """Return the names and the help of each option."""
    context = click.Context(command, info_name=typed)
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    return [record for record in records if record is not None]


def _table(options: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield from ("| option | meaning |", "|---|---|")
    for names, meaning in options:
        yield f"| `{_cell(names)}` | {_cell(meaning)} |"


def _command(command: click.Command, typed: str, shared: Container[tuple[str, str]]) -> Iterator[str]:
    context = click.Context(command, info_name=typed)
    yield from ("", f"## {typed}", "", "```", command.get_usage(context).removeprefix("Usage: "), "```", "")
    for paragraph in (command.help or "").strip().split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    own = [each for each in _options(command, typed) if each not in shared]
    if own:
        yield from (*_table(own), "")
    common = [f"`{each[0].split()[0].rstrip(',')}`" for each in _options(command, typed) if each in shared]
    if common:
        yield from (f"[Common options](#common-options): {', '.join(common)}.", "")
    if isinstance(command, CommandWithExamples):
        yield "```sh"
        for example in command.examples:
            yield from (f"# {example.about}", f"respread {example.arguments}")
        yield from ("```", "")


def _cell(text: str) -> str:
    """Return a text as a cell of a table, with escaped bars."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def examples() -> str:
    """Return a section for each example: its title and description from its first comment, and its YAML."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.yaml")}
    if found.keys() != set(ORDER):
        raise ValueError(f"ORDER and {EXAMPLES} differ: {sorted(found.keys() ^ set(ORDER))}")
    return "".join(_example(name, found[name]) for name in ORDER)


def _example(name: str, text: str) -> str:
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    title, _, *about = (line.removeprefix("#").strip() for line in lines[:begin])
    policy = "\n".join(lines[begin:])
    return (
        f"\n## {title}\n\n{' '.join(about)}\n\n```yaml\n{policy}\n```\n\n"
        f"`kubectl apply --server-side -f docs/examples/{name}.yaml`\n"
    )


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
