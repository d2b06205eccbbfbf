"""The documents of YAML and JSON files, each with a name for messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from respread.program.command_line import CommandError


class _UniqueKeys(yaml.SafeLoader):
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
        return super().construct_mapping(node, deep)


def read_documents(file: str) -> list[tuple[str, Any]]:
    """Return the documents of a file and the items of its Lists, each with a name for messages.

    Empty documents, such as after a final `---`, are ignored. An item of a typed list gets the kind from the list.

    Args:
        file: its path, `-` for standard input.

    Raises:
        CommandError: if it can't be read, or is not YAML.
    """
    name = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        documents = [each for each in yaml.load_all(text, _UniqueKeys) if each is not None]
    except OSError as error:
        raise CommandError(f"{name} can't be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not text in UTF-8: {error}.") from error
    except yaml.YAMLError as error:
        raise CommandError(f"{name} is not YAML: {error}") from error
    found: list[tuple[str, Any]] = []
    for number, document in enumerate(documents, start=1):
        where = name if len(documents) == 1 else f"{name}, document {number}"
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            found += [
                (f"{where}, items[{position}]", _whole(item, document))
                for position, item in enumerate(document["items"])
            ]
        else:
            found.append((where, document))
    return found


def _whole(item: Any, of_list: dict[Any, Any]) -> Any:
    """Return an item with the apiVersion and kind that the API server only sets on its list."""
    kind = str(of_list.get("kind", ""))
    if not isinstance(item, dict) or kind in {"", "List"}:
        return item
    return {"apiVersion": of_list.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
