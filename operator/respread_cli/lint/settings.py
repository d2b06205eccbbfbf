"""Which rules are switched off, or have another level: for a project by a file, for an object by an annotation."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path as File
from typing import Final, Literal, TypeAlias

import msgspec
import yaml

from respread.api.structures import suggestion
from respread.program.command_line import CommandError
from respread_cli.lint.manifests import Manifest
from respread_cli.lint.rules import RULES, LintFinding, LintLevel

ANNOTATION: Final = "respread.dev/lint-off"
"""Rules that are switched off for an object, separated by commas; `*` is all."""
SETTINGS_FILE: Final = ".respread-lint.yaml"
"""Read from the current folder if it is there."""
ALL: Final = "*"


RuleSetting: TypeAlias = Literal["error", "warning", "off"] | bool
"""A level, or `off`, which YAML reads as false."""


class Ignored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Objects for which rules are switched off. Empty fields select all."""

    rules: tuple[str, ...]
    reason: str = ""
    """For readers of the file and of the SARIF log."""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    file: str = ""

    def covers(self, rule: str, manifest: Manifest) -> bool:
        """Return whether it switches off a rule for an object. Patterns are as in a shell: `legacy-*`."""
        return (ALL in self.rules or rule in self.rules) and all(
            not pattern or fnmatchcase(value, pattern)
            for pattern, value in (
                (self.kind, manifest.kind),
                (self.namespace, manifest.namespace),
                (self.name, manifest.name),
                (self.file, manifest.file),
            )
        )


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a settings file."""

    rules: dict[str, RuleSetting] = {}
    ignore: tuple[Ignored, ...] = ()

    def level(self, rule: str) -> LintLevel | None:
        """Return the level of a rule, None if it is off."""
        setting = self.rules.get(rule, RULES[rule].level)
        if isinstance(setting, bool):
            return RULES[rule].level if setting else None
        return None if setting == "off" else setting

    def ignored(self, rule: str, manifest: Manifest) -> Ignored | None:
        """Return why a rule is switched off for an object; None if it is not."""
        return next((each for each in self.ignore if each.covers(rule, manifest)), None)


def read_settings(file: str | None) -> Settings:
    """Return the settings of a file.

    Args:
        file: its path; None for `.respread-lint.yaml` in the current folder, if it is there.

    Raises:
        CommandError: it can't be read, or names a rule that does not exist.
    """
    if file is None and not File(SETTINGS_FILE).exists():
        return Settings()
    path = file or SETTINGS_FILE
    try:
        content = yaml.safe_load(File(path).read_text(encoding="utf-8"))
        settings = msgspec.convert({} if content is None else content, Settings)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} can't be read: {error}.") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise CommandError(f"{path} holds no settings of respread lint: {error}.") from error
    named = (*settings.rules, *(rule for each in settings.ignore for rule in each.rules if rule != ALL))
    for rule in named:
        if rule not in RULES:
            raise CommandError(f"{path}: {unknown_rule(rule)}")
    return settings


def unknown_rule(rule: str) -> str:
    """Return a sentence that says that a rule does not exist."""
    return f"there is no rule {rule}{suggestion(rule, RULES)}. `respread lint --rules` lists them."


def switched_off(manifest: Manifest) -> tuple[frozenset[str], list[LintFinding]]:
    """Return the rules that an object's annotation switches off, and its mistakes.

    The annotation may also be on the pod template.
    """
    rules: set[str] = set()
    findings: list[LintFinding] = []
    for metadata in (("metadata",), ("spec", "template", "metadata")):
        annotations = manifest.at((*metadata, "annotations"))
        value = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
        for rule in str(value or "").replace(",", " ").split():
            if rule in RULES or rule == ALL:
                rules.add(rule)
            else:
                message = f"It switches off a rule that does not exist: {unknown_rule(rule)}"
                field = (*metadata, "annotations", ANNOTATION)
                findings.append(LintFinding(rule="UnknownRule", field=field, message=message, cure=""))
    return frozenset(RULES) if ALL in rules else frozenset(rules), findings
