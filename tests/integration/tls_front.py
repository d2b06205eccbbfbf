"""A TLS server with certificates of any kind in front of a real API server, as load balancers and old clusters have."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Final, NamedTuple, Self

from respread_sandbox import Sandbox

_IDENTIFIERS: Final = ("subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid")
_NO_IDENTIFIERS: Final = ("subjectKeyIdentifier=none", "authorityKeyIdentifier=none")
RSA: Final = ("rsa:2048",)
ECDSA: Final = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")


class Certificate(NamedTuple):
    """A certificate with its key, in files."""

    certificate: Path
    key: Path

    @property
    def text(self) -> str:
        """The certificate as PEM."""
        return self.certificate.read_text(encoding="utf-8")


class Authority(NamedTuple):
    """A certificate authority, which issues certificates into a folder."""

    folder: Path
    own: Certificate
    identifiers: bool
    """Whether its certificates have identifiers of keys. Go's had none before version 1.15."""

    @classmethod
    def create(
        cls, folder: Path, name: str = "ca", *, key: tuple[str, ...] = ECDSA, identifiers: bool = True
    ) -> Authority:
        """Create an authority that is its own issuer."""
        extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,digitalSignature,keyCertSign"]
        extensions += (_IDENTIFIERS if identifiers else _NO_IDENTIFIERS)[:1]
        return cls(folder, _certificate(folder, name, extensions, key), identifiers)

    def intermediate(self, name: str = "intermediate") -> Authority:
        """Create another authority, issued by this one."""
        extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,digitalSignature,keyCertSign"]
        return Authority(self.folder, self._issue(name, extensions), self.identifiers)

    def server(self, *names: str, key: tuple[str, ...] = ECDSA, name: str = "") -> Certificate:
        """Issue a server's certificate for names such as `IP:127.0.0.1`, into files of another name if one is given."""
        extensions = [
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature,keyEncipherment",
            "extendedKeyUsage=serverAuth",
            f"subjectAltName={','.join(names)}",
        ]
        return self._issue(name or f"server-of-{self.own.certificate.stem}", extensions, key)

    def _issue(self, name: str, extensions: list[str], key: tuple[str, ...] = ECDSA) -> Certificate:
        extensions += _IDENTIFIERS if self.identifiers else _NO_IDENTIFIERS
        return _certificate(self.folder, name, extensions, key, ("-CA", self.own.certificate, "-CAkey", self.own.key))


def _certificate(
    folder: Path, name: str, extensions: list[str], key: tuple[str, ...], by: tuple[str | Path, ...] = ()
) -> Certificate:
    made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    config = folder / f"{name}.cnf"
    head = ["[req]", "distinguished_name=dn", "x509_extensions=ext", "prompt=no", "[dn]", f"CN={name}", "[ext]"]
    config.write_text("\n".join([*head, *extensions, ""]), encoding="utf-8")
    new = ["openssl", "req", "-x509", "-days", "365", "-nodes", "-newkey", *key]
    files: list[str | Path] = ["-config", config, "-keyout", made.key, "-out", made.certificate]
    subprocess.run([*new, *by, *files], check=True, capture_output=True)
    return made


class TlsFront:
    """Ends TLS with certificates of its own, and passes requests on to the API server."""

    def __init__(self, sandbox: Sandbox, *chain: Certificate) -> None:
        """Serve with a certificate, followed by those of intermediate authorities."""
        self._sandbox = sandbox
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stopping = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), name="tls-front")
        self._port = 0
        self._load(*chain)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    @property
    def server(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self._port}"

    def replace(self, *chain: Certificate) -> None:
        """Serve with another certificate from now on, and close all connections, as a restarted API server does."""
        self._load(*chain)
        self._loop.call_soon_threadsafe(self._close_all)

    def _load(self, *chain: Certificate) -> None:
        bundle = chain[0].certificate.with_suffix(".chain")
        bundle.write_text("".join(each.text for each in chain), encoding="utf-8")
        self._tls.load_cert_chain(bundle, chain[0].key)

    def _close_all(self) -> None:
        for writer in self._open:
            with contextlib.suppress(AttributeError):  # Debian's Python 3.11.2 can't abort what was closed twice.
                writer.transport.abort()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0, ssl=self._tls)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        self._close_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=60) if others else None

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        authority = ssl.create_default_context(cafile=str(self._sandbox.files.serving_certificate))
        host, _, port = self._sandbox.server.removeprefix("https://").rpartition(":")
        behind, to_behind = await asyncio.open_connection(host, int(port), ssl=authority)
        both = {writer, to_behind}
        self._open |= both
        try:
            await asyncio.gather(_copy(reader, to_behind), _copy(behind, writer))
        finally:
            self._open -= both


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()
