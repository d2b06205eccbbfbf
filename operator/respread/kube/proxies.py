"""The proxy that HTTPS_PROXY and NO_PROXY choose for a server, as for kubectl and every Go program.

Python's `urllib` reads the same variables, but no ranges of addresses: with NO_PROXY=10.0.0.0/8, which pods often have,
requests to the API server at 10.96.0.1 would go to the proxy. Mirrors golang.org/x/net/http/httpproxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

_SCHEMES: Final = ("http", "https")
_PORTS: Final = {"http": 80, "https": 443}

_Address: TypeAlias = IPv4Address | IPv6Address


class ProxyError(ValueError):
    """A proxy can't be used."""


def proxy_of_environment(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server, or None if there is none, or NO_PROXY excludes the server."""
    address = urlsplit(server)
    proxy = _variable(environment, f"{address.scheme}_proxy")
    return None if proxy is None or _is_direct(address, _variable(environment, "no_proxy") or "") else proxy


def proxy_url(proxy: str) -> str:
    """Return a proxy as a URL, with http if it has no scheme.

    Raises:
        ProxyError: it is of a kind that is not supported.
    """
    url = proxy if "://" in proxy else f"http://{proxy}"
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        raise ProxyError(
            f"proxies of the scheme {scheme} are not supported: name an http or https proxy in proxy-url or "
            "HTTPS_PROXY, or exclude the API server by NO_PROXY"
        )
    return url


def _variable(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name) or environment.get(name.upper()) or None


def _is_direct(server: SplitResult, exceptions: str) -> bool:
    host = (server.hostname or "").lower()
    address = _as_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = server.port or _PORTS[server.scheme]
    return any(_excludes(each.strip().lower(), host, address, port) for each in exceptions.split(","))


def _excludes(exception: str, host: str, address: _Address | None, port: int) -> bool:
    """Return whether one entry of NO_PROXY is about a server."""
    if exception == "*":
        return True
    if "/" in exception:
        return address is not None and _contains(exception, address)
    name, of_port = _split_port(exception)
    if not name or of_port not in ("", str(port)):
        return False
    if address is not None:
        return _as_address(name) == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _contains(network: str, address: _Address) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(exception: str) -> tuple[str, str]:
    """Return the host and the port, empty if there is none. An IPv6 address with a port is in brackets."""
    if exception.startswith("["):
        host, _, rest = exception[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = exception.partition(":")
    return (exception, "") if ":" in port else (host, port)


def _as_address(host: str) -> _Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
