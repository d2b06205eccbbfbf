"""`respread snapshot`: writes everything that a plan depends on to a file."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO, Final

import click
import msgspec

from respread import __version__
from respread.api.json_documents import decoded
from respread.cluster.decode.decoder import Kind, NotAListError, split_list
from respread.cluster.stores import full_name
from respread.program.command_line import ENVIRONMENT, CommandError, CommandWithExamples, Example, files
from respread_cli.options import client_options
from respread_cli.read.cluster_view import OPTIONAL, READ_KINDS, ConnectionOptions, WantedKind
from respread_cli.read.connection import Connection, ListExpiredError, UnreadableError, connect
from respread_cli.read.live import note_unless_required
from respread_cli.read.snapshot_file import ABOUT, STANDARD_INPUT, About, snapshot_content

STANDARD_OUTPUT: Final = STANDARD_INPUT

_SHOWN_KINDS: Final = ("pods", "nodes", "namespaces", "poddisruptionbudgets")

EXAMPLES: Final = (
    Example("Take a compressed snapshot of the current context", "snapshot cluster.json.gz"),
    Example("A snapshot of another cluster", "snapshot --context prod prod.json.gz"),
    Example("Write the snapshot to another program", "snapshot - | gzip > prod.json.gz"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.argument("file", metavar="FILE", shell_complete=files)
@client_options
def snapshot(*, file: str, connection: ConnectionOptions) -> None:
    """Write all that a plan depends on to a file.

    The file is compressed if the name of FILE ends in .gz; - is standard output. `respread skew`, `respread plan` and
    others read it with --snapshot. Environment variables, commands, probes and irrelevant annotations are left out, so
    that you can share it. Names are included.
    """
    with closing(connect(connection)) as opened:
        _write(opened, file)


def _write(connection: Connection, file: str) -> None:
    counts: Counter[Kind] = Counter()
    notes: list[str] = []
    taken_at = datetime.now(UTC)
    with _written(file) as stream:
        stream.write(b'{"apiVersion":"v1","kind":"List","items":[')
        for kind in READ_KINDS:
            wanted = WantedKind(kind, required=kind not in OPTIONAL)
            try:
                for item in _items(connection, wanted):
                    stream.write(b",\n" if counts.total() else b"\n")
                    stream.write(item)
                    counts[kind] += 1
            except UnreadableError as error:
                notes.append(note_unless_required(wanted, error))
        about = About(
            taken_at=taken_at,
            source=connection.endpoint.name,
            namespace=connection.endpoint.namespace,
            server_version=connection.version(),
            respread_version=__version__,
            notes=tuple(dict.fromkeys(notes)),
        )
        stream.write(b'\n],"%s":%s}\n' % (ABOUT.encode(), msgspec.json.encode(about)))
    for note in about.notes:
        click.echo(f"Note: {note}", err=True)
    shown = ", ".join(f"{counts[kind]:,} {full_name(kind)}" for kind in READ_KINDS if kind.resource in _SHOWN_KINDS)
    others = sum(count for kind, count in counts.items() if kind.resource not in _SHOWN_KINDS)
    where = "" if file == STANDARD_OUTPUT else f" to {file}"
    click.echo(f"Wrote {shown} and {others:,} other objects of {connection.endpoint.name}{where}.", err=True)


def _items(connection: Connection, wanted: WantedKind) -> Iterator[bytes]:
    try:
        for page in connection.pages(wanted):
            for raw in split_list(page).items:
                yield msgspec.json.encode(snapshot_content(wanted.kind, decoded(msgspec.json.decode, raw)))
    except ListExpiredError as error:
        raise CommandError(
            f"the API server forgot the list of {full_name(wanted.kind)} before it was read to its end: try again, "
            "from nearer to the cluster."
        ) from error
    except NotAListError as error:
        raise CommandError(f"what the API server answered for {full_name(wanted.kind)} is no list: {error}.") from error


@contextmanager
def _written(file: str) -> Iterator[BinaryIO | BufferedIOBase]:
    """Open the destination. A file is written in full or not at all."""
    if file == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, filename="") as stream:
                    yield stream
            else:
                yield raw
        partial.replace(path)
    except OSError as error:
        raise CommandError(f"{file} can't be written: {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)
