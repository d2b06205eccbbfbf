"""Keys, tokens and kubeconfig files of a sandbox."""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path
from typing import Any, Final

import yaml

P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
P256_OBJECT_IDENTIFIER: Final = bytes.fromhex("06082a8648ce3d030107")
INTEGER, OCTET_STRING, SEQUENCE, CONTEXT_0 = 0x02, 0x04, 0x30, 0xA0


def signing_key_pem() -> str:
    """Return a new EC P-256 private key for service account tokens.

    RFC 5915 makes the public point optional, and Go derives it, so that the key is a random number in its wrapping and
    needs no cryptography library.
    """
    scalar = secrets.randbelow(P256_ORDER - 1) + 1
    number = _der(OCTET_STRING, scalar.to_bytes(32, "big"))
    key = _der(SEQUENCE, _der(INTEGER, b"\x01") + number + _der(CONTEXT_0, P256_OBJECT_IDENTIFIER))
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.encodebytes(key).decode()}-----END EC PRIVATE KEY-----\n"


def _der(tag: int, content: bytes) -> bytes:
    return bytes([tag, len(content)]) + content  # contents below 128 bytes, whose length is one byte


def token() -> str:
    """Return a new bearer token."""
    return secrets.token_urlsafe(24)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, replacing an older one atomically."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    partial.rename(path)


def kubeconfig(*, name: str, server: str, certificate_authority: Path, user: str, token: str) -> str:
    """Return a kubeconfig with one cluster, one user with a bearer token, and a context of the sandbox's name."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority": str(certificate_authority)}},
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
        "current-context": name,
    }
    text: str = yaml.safe_dump(content, sort_keys=False)
    return text
