"""Policies of descheduler: our own version of each example in its repository, and their content.

Each document of tests/descheduler has the form of the example that its comment names, with other names and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from respread_cli.migrate.descheduler import EVICTOR, SPREAD

FILES: Final = tuple(sorted((Path(__file__).parent / "descheduler").glob("*.yaml")))

DOCUMENTS: Final = {
    f"{file.stem}, {text.splitlines()[0].removeprefix('# ')}": text
    for file in FILES
    for text in re.split(r"^---\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
}
"""Every document, by its file and its comment."""
RUNS: Final = ("kubernetes/cronjob", "kubernetes/deployment", "kubernetes/job", "kubernetes/base/rbac")
EXAMPLES: Final = {name: text for name, text in DOCUMENTS.items() if not any(each in name for each in RUNS)}
"""The documents that contain a policy."""


def lines(document: Any) -> Iterator[str]:
    """Yield the path of every meaningful value of a document.

    Names without meaning are left out: the kind of the document, and the plugin that a policy of ours stands for.
    """
    if document.get("kind") == "ConfigMap":
        document = yaml.safe_load(document["data"]["policy.yaml"])
    for path, value in _values(document, ""):
        name = path.rpartition(".")[2]
        if name in {"apiVersion", "deschedulerPolicyAPIVersion"} or value == "DeschedulerPolicy":
            continue
        if re.search(r"profiles\[\d+\]\.name$|disabled$", path) or value in {EVICTOR, SPREAD}:
            continue
        if re.search(rf"strategies\.{SPREAD}\.enabled$", path):
            continue
        yield path


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _values(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _values(each, f"{path}[{index}]")
    elif value is not None or path.rpartition(".")[0].endswith("cmdOptions"):
        yield path, value


def named(path: str, output: str) -> bool:
    """Return whether a comment names a line, or the whole object or list that contains it, except a whole profile."""
    while path:
        if re.search(r"profiles\[\d+\]$", path) or path in {"deschedulerPolicy", "strategies"}:
            return False
        if re.search(rf"(?<![\w.\]]){re.escape(path)}(?![\w.\[])[,:]?(?=[\s,:]|$)", output):
            return True
        path = re.sub(r"(\.[^.\[]+|\[\d+\])$", "", path) if re.search(r"[.\[]", path) else ""
    return False
