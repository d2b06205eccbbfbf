"""`respread migrate`: writes policies from descheduler's, as YAML with a comment for each line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import yaml

from respread.program.command_line import CommandError, CommandWithExamples, Example, files
from respread_cli.migrate.inputs import find_policies, nothing_found
from respread_cli.migrate.policies import Draft, Migrated, manifest
from respread_cli.migrate.policies import migrate as migrate_policies
from respread_cli.migrate.reading import Reading, Remark, Setting, SourcePlace

_COLUMNS: Final = 118
_INDENT: Final = "  "
_ORDER: Final = (
    "mode",
    "priority",
    "namespaceSelector",
    "podSelector",
    "constraints",
    "limits",
    "victims",
    "eviction",
    "windows",
)
"""The order of the fields of a spec, as in docs/policy.md."""
_ONE_NAMESPACE: Final = (
    "One namespace, so a RebalancePolicy in it. It governs its pods before any ClusterRebalancePolicy does, unless the "
    "operator runs with --namespaced-policies=ignore."
)
EXAMPLES: Final = (
    Example("From the policy that descheduler reads", "migrate descheduler-policy.yaml > policies.yaml"),
    Example("From the installed Helm release", "migrate values.yaml cronjob.yaml"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings={"max_content_width": 100})
@click.argument("files", metavar="[FILE]...", nargs=-1, shell_complete=files)
def migrate(files: tuple[str, ...]) -> None:
    """Write policies from the settings of descheduler.

    FILE contains a DeschedulerPolicy (v1alpha1 or v1alpha2), a ConfigMap with one, or the values of descheduler's Helm
    chart. CronJobs and Deployments beside it define when descheduler runs. Without FILE, or with -, the command reads
    standard input. It writes the policies to standard output, in mode DryRun, with a comment for every setting without
    a counterpart. It does not contact a cluster.

    Exit code: 0 if the policies are written, 2 for an error.
    """
    files = files or ("-",)
    reading = Reading()
    found = find_policies(files, reading)
    migrated = migrate_policies(found, reading)
    if reading.mistakes:
        mistakes = list(dict.fromkeys(reading.mistakes))
        raise CommandError("\n  ".join([f"{len(mistakes)} mistakes:", *mistakes]) if len(mistakes) > 1 else mistakes[0])
    if not found:
        raise CommandError(nothing_found(files))
    click.echo(_rendered(migrated), nl=False)
    drafts = [draft for each in migrated for draft in each.drafts]
    remarks = [remark for each in migrated for remark in each.remarks]
    remarks += [remark for draft in drafts for remark in draft.remarks]
    cautions = sum(remark.caution for remark in remarks)
    policies = f"{_count(len(drafts), 'policy', 'policies')} in mode DryRun" if drafts else "No policy comes of it"
    said = f"{policies}, {_count(len(remarks), 'comment', 'comments')}"
    click.echo(
        f"{said} on lines without a counterpart{f', {cautions} of them marked CAUTION' * bool(cautions)}.", err=True
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _rendered(migrated: Iterable[Migrated]) -> str:
    """Return all policies as one file."""
    blocks: list[str] = []
    for each in migrated:
        head = "\n".join(_head(each))
        policies = ["\n".join(_policy(draft, each.place)) for draft in each.drafts]
        blocks += [f"{head}\n#\n{policies[0]}", *policies[1:]] if policies else [head]
    return "\n---\n".join(blocks) + "\n"


def _head(migrated: Migrated) -> Iterator[str]:
    yield from _comment(f"Written by `respread migrate` from {migrated.place.document}.")
    if not migrated.drafts:
        yield from _comment("No policy comes of it: nothing in it restores topology spread.")
    if migrated.remarks:
        yield from _comment("What is not in the policies:" if migrated.drafts else "What is in it:")
        yield from _remarks(migrated.remarks, migrated.place)


def _policy(draft: Draft, place: SourcePlace) -> Iterator[str]:
    name = f" ({draft.profile.name})" if draft.profile.name else ""
    yield from _comment(f"{draft.profile.place.path}{name}")
    if draft.kind == "RebalancePolicy":
        yield from _comment(_said(draft.namespace_places, _ONE_NAMESPACE, place))
    if draft.remarks:
        yield from _comment("What is not in this policy:")
        yield from _remarks(draft.remarks, place)
    document = manifest(draft)
    spec = document.pop("spec")
    yield from _dump(document, "")
    yield "spec:"
    comments = {setting.field: setting for setting in draft.settings}
    ordered = {field: spec[field] for field in _ORDER if field in spec}
    yield from _fields(ordered, "", comments, _INDENT, place)


def _fields(
    fields: dict[str, Any], above: str, settings: dict[str, Setting], indent: str, place: SourcePlace
) -> Iterator[str]:
    for name, value in fields.items():
        field = f"{above}{name}"
        setting = settings.get(field)
        if setting is None:
            yield f"{indent}{name}:"
            yield from _fields(value, f"{field}.", settings, indent + _INDENT, place)
        else:
            yield from _comment(_said(setting.places, setting.why, place), indent)
            yield from _dump({name: value}, indent)


def _dump(fields: dict[str, Any], indent: str) -> Iterator[str]:
    # PyYAML writes a mapping in braces if all its values are scalars. A list beside them prevents that.
    fields = {**fields, "_": []}
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, default_flow_style=None, width=_COLUMNS)
    for line in text.splitlines()[:-1]:
        yield f"{indent}{line}"


def _remarks(remarks: Iterable[Remark], place: SourcePlace) -> Iterator[str]:
    for remark in remarks:
        text = _said(remark.places, remark.why, place)
        yield from _comment(f"- {'CAUTION: ' if remark.caution else ''}{text}", hanging="  ")


def _said(places: Iterable[SourcePlace], why: str, place: SourcePlace) -> str:
    """Return a line's places, those of another document with its name, and its comment."""
    names = ", ".join(each.path if each.document == place.document else str(each) for each in places)
    return ": ".join(filter(None, (names, why)))


def _comment(text: str, indent: str = "", *, hanging: str = "") -> Iterator[str]:
    width = _COLUMNS - len(indent) - len("# ")
    for line in textwrap.wrap(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False):
        yield f"{indent}# {line}"
