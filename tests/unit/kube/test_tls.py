"""The TLS context follows the files of certificates. A test of the same name shows which API servers it accepts."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import pytest

from respread.kube.credentials import LOOK_SECONDS, Endpoint, Pem, TlsContext
from tests.integration.tls_front import Authority


def trusted(context: TlsContext) -> set[str]:
    """Return the authorities that are trusted for new connections, as PEM."""
    return {ssl.DER_cert_to_PEM_cert(each) for each in context.current.get_ca_certs(binary_form=True)}


def test_a_changed_authority_is_trusted_within_a_minute_and_a_removed_one_no_more(tmp_path: Path) -> None:
    old, new = (Authority.create(tmp_path, name).own.text for name in ("old", "new"))
    file, now = tmp_path / "ca.crt", [0.0]
    file.write_text(old, encoding="utf-8")
    context = TlsContext(Endpoint(server="https://a", certificate_authority=Pem(path=str(file))), lambda: now[0])
    for text, expected in [(old + new, {old, new}), ("", {old, new}), (new[:100], {old, new}), (new, {new})]:
        file.write_text(text, encoding="utf-8")
        assert context.is_current
        now[0] += LOOK_SECONDS
        assert not context.is_current
        context.look()
        assert trusted(context) == expected
        assert context.current.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN, "as client-go checks it"
    file.unlink()
    context.doubt()
    assert not context.is_current
    context.look()
    assert context.is_current
    assert trusted(context) == {new}


def test_a_connection_does_not_change_the_context_of_other_threads() -> None:
    """Python's `ssl` may read what urllib3 sets for each connection after it is freed, and the hello is malformed."""
    context = TlsContext(Endpoint(server="https://a")).current
    context.set_alpn_protocols(["h2"])
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="a").do_handshake()
    assert b"http/1.1" in hello.read()


def test_an_empty_file_does_not_mean_that_the_authorities_of_the_system_are_trusted(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(OSError, match=r"nothing in the file: '.*ca\.crt'"):
        TlsContext(Endpoint(server="https://a", certificate_authority=Pem(path=str(file))))


def test_a_client_certificate_without_its_new_key_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are replaced one after the other. In a container, there is no folder to write them to."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    authority = Authority.create(tmp_path)
    first, second = (authority.server(f"DNS:{name}", name=name) for name in ("first", "second"))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_text(first.text, encoding="utf-8")
    key.write_bytes(first.key.read_bytes())
    endpoint = Endpoint(
        server="https://a", client_certificate=Pem(path=str(certificate)), client_key=Pem(path=str(key))
    )
    context = TlsContext(endpoint, lambda: 0.0)
    before = context.current
    certificate.write_text(second.text, encoding="utf-8")
    context.look()
    assert context.current is before
    key.write_bytes(second.key.read_bytes())
    context.look()
    assert context.current is not before
