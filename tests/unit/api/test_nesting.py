"""Documents that are nested too deeply are read without their deepest values."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from respread.api.json_documents import MOST_LEVELS, decoded, shallow


def nested(levels: int, opening: str, closing: str) -> bytes:
    return (opening * levels + "null" + closing * levels).encode()


@pytest.mark.parametrize(("opening", "closing"), [('{"f:a":', "}"), ("[", "]"), ('[{"a]}":', "}]")])
@pytest.mark.parametrize("levels", [1, MOST_LEVELS // 2, MOST_LEVELS, 10_000])
def test_only_values_below_the_most_levels_become_null(opening: str, closing: str, levels: int) -> None:
    document = b'{"before": "\\"[{", "deep": %b, "after": [1, "}]\\\\"]}' % nested(levels, opening, closing)
    found = json.loads(shallow(document))
    assert (found["before"], found["after"]) == ('"[{', [1, "}]\\"])
    depth, value = 0, found["deep"]
    while value is not None:
        value = value[0] if isinstance(value, list) else next(iter(value.values()))
        depth += 1
    assert depth == min(levels * len(closing), MOST_LEVELS - 1)


@pytest.mark.parametrize("levels", [*range(800, 1010, 10), 10_000])
def test_a_document_of_any_depth_is_decoded(levels: int) -> None:
    class Read(msgspec.Struct):
        kept: int = 0

    document = b'{"deep": %b, "kept": 7}' % nested(levels, "[", "]")
    assert decoded(msgspec.json.Decoder(Read).decode, document).kept == 7
    everything: Any = decoded(msgspec.json.decode, document)
    assert everything["kept"] == 7


@pytest.mark.parametrize("document", [b"", b"[" * 5_000, b"]" * 5_000, b'{"a": ' * 5_000 + b'"'])
def test_a_document_that_is_no_json_is_an_error_of_decoding(document: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decoded(msgspec.json.decode, document)
