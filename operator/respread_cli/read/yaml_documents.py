"""The documents of YAML and JSON files, each with a name for messages, and the line of each of its fields."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from respread.program.command_line import CommandError

FieldPath: TypeAlias = tuple[str | int, ...]
"""A field of an object: `("spec", "containers", 0)`."""
STANDARD_INPUT: Final = "-"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser, which is several times faster, if PyYAML was built with it."""


class Document(NamedTuple):
    """A document of a file, or an item of a List in it."""

    where: str
    """Its place, for messages: `web.yaml, document 2`."""
    content: Any
    node: yaml.Node
    """The YAML that the content comes from, with its lines."""

    def line(self, path: FieldPath = ()) -> int:
        """Return the line of a field, from 1; that of the closest field around it if the document does not have it."""
        node, line = self.node, self.node.start_mark.line
        for part in path:
            if isinstance(node, yaml.MappingNode):
                found = next(((key, value) for key, value in node.value if key.value == part), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
            else:
                break
        return line + 1


class NotYamlError(ValueError):
    """A file is not YAML. The message says what is wrong, without the file.

    Args:
        message: what is wrong, and where, as the YAML parser says it.
        line: from 1.
        before: the documents before the mistake.
    """

    def __init__(self, message: str, line: int, before: list[Document]) -> None:
        super().__init__(message)
        self.line = line
        self.before = before


class _UniqueKeys(_Loader):  # type: ignore[misc, valid-type]  # chosen at run time
    """Rejects an object with the same key twice, as kubectl does. YAML would silently take the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        "in an object", node.start_mark, f"the key {key.value!r} is there twice", key.start_mark
                    )
                seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def name_of(file: str) -> str:
    """Return how messages call a file."""
    return "standard input" if file == STANDARD_INPUT else file


def read_documents(file: str) -> list[tuple[str, Any]]:
    """Return the documents of a file and the items of its Lists, each with a name for messages.

    `-` is standard input.

    Raises:
        CommandError: if it can't be read, or is not YAML.
    """
    try:
        return [(each.where, each.content) for each in parse_documents(name_of(file), read_text(file))]
    except NotYamlError as error:
        raise CommandError(f"{name_of(file)} is not YAML: {error}") from error


def read_text(file: str) -> str:
    """Return the text of a file. `-` is standard input.

    Raises:
        CommandError: if it can't be read.
    """
    name = name_of(file)
    try:
        return sys.stdin.read() if file == STANDARD_INPUT else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{name} can't be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not text in UTF-8: {error}.") from error


def parse_documents(name: str, text: str) -> list[Document]:
    """Return the documents of a text and the items of its Lists.

    Empty documents, such as after a final `---`, are ignored. An item of a typed list gets the kind from the list. The
    text is YAML or JSON, and its name is for messages.

    Raises:
        NotYamlError: if it is neither.
    """
    found: list[tuple[Any, yaml.Node]] = []
    loader: Any = None
    try:
        loader = _UniqueKeys(text)
        while loader.check_node():
            node = loader.get_node()
            content = loader.construct_document(node)
            if content is not None:
                found.append((content, node))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_yaml(error, _documents(name, found)) from error
    finally:
        if loader is not None:
            loader.dispose()
    return _documents(name, found)


def _not_yaml(error: Exception, before: list[Document]) -> NotYamlError:
    if isinstance(error, RecursionError):
        return NotYamlError("it is nested too deeply.", 1, before)
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return NotYamlError(f"{error}.", 1, before)
    line, column = error.problem_mark.line + 1, error.problem_mark.column + 1
    context = f"{error.context}, " if error.context else ""
    return NotYamlError(f"{context}{error.problem}, in line {line}, column {column}.", line, before)


def _documents(name: str, found: Sequence[tuple[Any, yaml.Node]]) -> list[Document]:
    documents: list[Document] = []
    for number, (content, node) in enumerate(found, start=1):
        where = name if len(found) == 1 else f"{name}, document {number}"
        if isinstance(content, dict) and isinstance(content.get("items"), list):
            documents += _items(where, content, node)
        else:
            documents.append(Document(where, content, node))
    return documents


def _items(where: str, content: dict[Any, Any], node: yaml.Node) -> list[Document]:
    nodes = next((value.value for key, value in node.value if key.value == "items"), ())
    return [
        Document(
            f"{where}, items[{position}]", _whole(item, content), nodes[position] if position < len(nodes) else node
        )
        for position, item in enumerate(content["items"])
    ]


def _whole(item: Any, of_list: dict[Any, Any]) -> Any:
    """Return an item with the apiVersion and kind that the API server only sets on its list."""
    kind = str(of_list.get("kind", ""))
    if not isinstance(item, dict) or kind in {"", "List"}:
        return item
    return {"apiVersion": of_list.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
