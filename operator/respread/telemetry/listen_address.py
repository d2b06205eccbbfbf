"""The address of a server, in the form of `--listen-address`."""

from __future__ import annotations

import re

import msgspec

_HIGHEST_PORT = 65535


class ListenAddress(msgspec.Struct, frozen=True):
    """A host and a TCP port."""

    host: str
    """Empty for all addresses of the machine, IPv4 and IPv6."""
    port: int
    """0 for any free port."""

    def __str__(self) -> str:
        """Return it in the form of the option, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """Return the address in `host:port`, `:port` or `[IPv6]:port`.

    Raises:
        ValueError: It has none of these forms. The message says what is expected.
    """
    match = re.fullmatch(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+(?:%\w+)?)\]|(?P<host>[^\s:\[\]/]*)):(?P<port>[0-9]{1,5})", text)
    if match is None or int(match["port"]) > _HIGHEST_PORT:
        raise ValueError(f"{text!r} is not a listen address: expected host:port, :port or [IPv6]:port, such as :8080")
    return ListenAddress(match["ipv6"] or match["host"] or "", int(match["port"]))
