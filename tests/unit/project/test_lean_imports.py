"""A process imports only what it uses, because imports cost CPU and memory, and returns the memory that it frees."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from platform import libc_ver

import pytest

from respread.lean_process import hidden
from tests.unit.kube.test_access import write_kubeconfig

CLIENTS = ("kubernetes", "kubernetes_asyncio", "oauthlib", "pydantic", "pykube", "requests", "urllib3")
FRAMEWORKS = ("aiohttp", "asyncio", "kopf", "prometheus_client", "structlog", "uvloop", "websocket", *CLIENTS)


def imported_by(code: str) -> set[str]:
    """Return the top-level packages that a fresh interpreter has imported after running code."""
    code = textwrap.dedent(code) + "\nimport sys; print(*{name.split('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(run.stdout.split())


def test_the_operator_imports_neither_commands_nor_what_only_they_need(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", {"token": "secret"})
    found = imported_by(f"""
        from respread.program.main import operator
        operator.get_command(None, "run")
        from respread.kube.access import load_access
        load_access(kubeconfig={str(kubeconfig)!r})
    """)
    assert found.isdisjoint({*CLIENTS, "rich", "pygments", "better_exceptions", "respread_cli"})
    assert {"aiohttp", "kopf", "prometheus_client", "structlog", "uvloop"} <= found


def test_the_official_client_is_imported_for_an_exec_plugin(tmp_path: Path) -> None:
    """The client can be imported although it was hidden from Kopf."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"}
    kubeconfig = write_kubeconfig(tmp_path / "config", {"exec": plugin})
    found = imported_by(f"""
        import contextlib
        import respread.handlers
        from respread.kube.access import AccessError, load_access
        with contextlib.suppress(AccessError):
            load_access(kubeconfig={str(kubeconfig)!r})
    """)
    assert {"kopf", "kubernetes"} <= found


@pytest.mark.parametrize("command", ["skew", "plan", "explain", "simulate"])
def test_a_command_imports_the_client_only_when_it_needs_it(command: str) -> None:
    """A command for a snapshot needs no client, whose import would take three times as long."""
    found = imported_by(f"""
        from respread_cli.main import respread
        respread.get_command(None, {command!r})
    """)
    assert found.isdisjoint(FRAMEWORKS)


def test_hidden_modules_can_be_imported_afterwards() -> None:
    with hidden("this"), pytest.raises(ModuleNotFoundError):
        import_module("this.too")
    assert "this" not in sys.modules
    with hidden("json"):  # a loaded module
        assert import_module("json").dumps({}) == "{}"


def test_certificate_authorities_are_hidden_only_from_imports() -> None:
    """A TLS context that is created later has the default authorities of OpenSSL."""
    code = """
        import os
        os.environ["SSL_CERT_FILE"] = "mine"
        before = dict(os.environ)
        from respread.lean_process import no_authorities
        with no_authorities():
            import ssl
            assert not ssl.create_default_context().get_ca_certs()
        assert dict(os.environ) == before
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.skipif(libc_ver()[0] != "glibc", reason="only glibc keeps large buffers")
def test_large_buffers_are_returned_when_they_are_freed() -> None:
    code = """
        import os
        from respread.lean_process import prepare_for_long
        prepare_for_long()
        bytes(1 << 22)  # By default, glibc takes smaller ones from the heap from now on.
        small = [kept for _, kept in [(b"x" * (1 << 19), bytearray(4000)) for _ in range(100)]]
        pages = int(open("/proc/self/statm").read().split()[1])
        assert pages * os.sysconf("SC_PAGE_SIZE") < 40_000_000, pages
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
