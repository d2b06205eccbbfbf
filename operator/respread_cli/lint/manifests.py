"""The manifests of files, folders and standard input."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as File
from typing import Any, Final

import msgspec

from respread.program.command_line import CommandError
from respread_cli.read.yaml_documents import (
    STANDARD_INPUT,
    Document,
    FieldPath,
    NotYamlError,
    name_of,
    parse_documents,
    read_text,
)

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_CHART: Final = "Chart.yaml"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a file."""

    file: str
    """Its path as given, or `standard input`."""
    document: Document
    api_version: str
    kind: str
    namespace: str
    name: str
    content: Mapping[str, Any]

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def at(self, field: FieldPath) -> Any:
        """Return the value of a field, None if it is missing."""
        value: Any = self.content
        for part in field:
            if isinstance(value, Mapping):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value


class Unreadable(msgspec.Struct, frozen=True):
    """A file, or a document of it, that holds no object."""

    file: str
    line: int
    message: str


class Manifests(msgspec.Struct):
    """Everything that files contain."""

    objects: list[Manifest] = []
    unreadable: list[Unreadable] = []
    missing: list[str] = []
    """What can't be read at all, or holds nothing, a sentence each."""
    notes: list[str] = []


def read_manifests(places: Iterable[str], *, default_namespace: str) -> Manifests:
    """Read files, all YAML and JSON files below folders, and `-`, standard input.

    They are read in their order. A file that is named twice is read once.
    """
    found = Manifests()
    for file in dict.fromkeys(_files(places, found)):
        _read(file, default_namespace, found)
    return found


def _files(places: Iterable[str], found: Manifests) -> Iterator[str]:
    for place in places:
        if place == STANDARD_INPUT or not File(place).is_dir():
            if (chart := _chart_of(File(place))) is not None:
                found.notes.append(_skipped(place, str(chart)))
            else:
                yield place
            continue
        before = len(found.notes)
        files = sorted(_below(File(place), found))
        yield from files
        if not files and len(found.notes) == before:
            found.missing.append(f"the folder {place} holds no YAML or JSON file.")


def _below(folder: File, found: Manifests) -> Iterator[str]:
    """Yield the files below a folder, without hidden ones. The templates of Helm charts are not YAML."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        if _CHART in names:
            folders.clear()
            found.notes.append(_skipped(root, root))
            continue
        yield from (str(File(root, name)) for name in names if File(name).suffix in _SUFFIXES and name[0] != ".")


def _chart_of(file: File) -> File | None:
    """Return the Helm chart of which a file is a template."""
    return next(
        (each.parent for each in file.parents if each.name == "templates" and (each.parent / _CHART).exists()), None
    )


def _skipped(place: str, chart: str) -> str:
    return f"{place} is of a Helm chart, and skipped: helm template NAME {chart} | respread lint -"


def _read(file: str, default_namespace: str, found: Manifests) -> None:
    name = name_of(file)
    try:
        documents = parse_documents(name, read_text(file))
    except CommandError as error:
        found.missing.append(error.message)
        return
    except NotYamlError as error:
        found.unreadable.append(Unreadable(name, error.line, f"{name} is not YAML: {error}"))
        documents = error.before
    else:
        if not documents:
            found.missing.append(f"{name} is empty.")
    for document in documents:
        manifest = _manifest(name, document, default_namespace)
        if isinstance(manifest, str):
            found.unreadable.append(Unreadable(name, document.line(), f"{document.where}: {manifest}"))
        else:
            found.objects.append(manifest)


def _manifest(file: str, document: Document, default_namespace: str) -> Manifest | str:
    """Return an object, or why a document is none."""
    content = document.content
    if isinstance(content, list):
        content = {}  # A file of another program, such as a playbook.
    if not isinstance(content, Mapping):
        return "it is not an object of Kubernetes: an object has apiVersion, kind and metadata."
    api_version, kind = content.get("apiVersion"), content.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        if "apiVersion" in content or "metadata" in content:
            return "it is not an object of Kubernetes: apiVersion and kind must be text."
        api_version = kind = ""  # A file of another program, such as the values of a Helm chart.
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return Manifest(
        file=file,
        document=document,
        api_version=api_version,
        kind=kind,
        namespace=str(metadata.get("namespace") or default_namespace),
        name=str(metadata.get("name") or metadata.get("generateName") or ""),
        content=content,
    )
