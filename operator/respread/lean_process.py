"""What a process of ours costs: imports of libraries without optional dependencies, garbage collection, and memory.

With these imports, `respread run` imports in 0.4 s and 52 MiB instead of 0.9 s and 77 MiB:

- Kopf imports the clients kubernetes and pykube-ng to recognize their objects, which it never receives here. structlog
  imports rich for tracebacks with the values of local variables, which are never written. Kopf and structlog catch the
  ImportError and continue without them. The clients and rich are for credential plugins and the command line.
- aiohttp loads the system's certificate authorities twice, for sessions that don't specify which to trust. Ours specify
  it.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_AUTHORITIES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Where OpenSSL looks for certificate authorities instead of in the system's folder."""


@contextmanager
def hidden(*packages: str) -> Iterator[None]:
    """Make imports of top-level packages raise ModuleNotFoundError within the context, as if they were not installed.

    Python documents that None in `sys.modules` has this effect. A package that is already imported is not hidden,
    because its cost is already spent. Hidden packages can be imported later by others.
    """
    absent = [package for package in packages if package not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None is documented, and not in the type
    try:
        yield
    finally:
        for package in absent:
            del sys.modules[package]


@contextmanager
def no_authorities() -> Iterator[None]:
    """Make TLS contexts created within the context trust nobody by default. It is only for imports."""
    given = {name: os.environ[name] for name in _AUTHORITIES if name in os.environ}
    os.environ.update(dict.fromkeys(_AUTHORITIES, os.devnull))
    try:
        yield
    finally:
        for name in _AUTHORITIES:
            del os.environ[name]
        os.environ.update(given)


_THRESHOLDS: Final = (20_000, 20, 100)


def prepare_for_long() -> None:
    """Look for reference cycles far less often than by default, and return large buffers when they are freed.

    By default, all young objects are examined after every 700 new ones. This happens every few watch events and takes a
    quarter of their CPU time. Objects that the cluster state drops are freed at once by reference counting, because
    they have no cycles. At the end of the process nothing is examined, which would take seconds with 150,000 pods.
    Imported objects are permanent, so they are not examined either. Once it has freed some large buffers, such as pages
    of lists, glibc takes others from the heap (mallopt(3)), where they leave holes: 5 to 8 MiB with 6,000 pods.
    """
    import ctypes  # noqa: PLC0415 - commands that end soon don't need it

    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD
