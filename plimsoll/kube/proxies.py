"""Which proxy leads to an API server: by the kubeconfig, or by the environment as kubectl reads it.

Python's `getproxies` and `proxy_bypass` know neither networks in NO_PROXY nor that the machine itself is never asked
by way of a proxy. The rules are those of Go's `httpproxy` (golang.org/x/net/http/httpproxy), which kubectl uses.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from plimsoll.part.errors import InputError
from plimsoll.part.settings import shown_url

_PORTS: Final = {"http": 80, "https": 443}


def proxy_of(
    server: str, field: str, configured: str | None, environment: Mapping[str, str]
) -> SplitResult | None:
    """The HTTP proxy through which requests go, or None.

    Args:
        server: the API server's address.
        field: the place of `configured`, for messages.
        configured: the kubeconfig's `proxy-url`; it counts before the environment.
        environment: the process's variables.

    Raises:
        InputError: the proxy is no HTTP proxy, or no address.
    """
    if configured:
        return _checked(field, configured)
    for name, proxy in _named(environment, f"{urlsplit(server).scheme}_proxy"):
        return None if _is_direct(server, environment) else _checked(name, proxy)
    return None


def _checked(field: str, proxy: str) -> SplitResult:
    address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if address.scheme.startswith("socks"):
        remedy = "name an HTTP proxy (http://HOST:PORT), or forward a port to the API server and name it as `server`"
        raise InputError(
            field, shown_url(proxy), "is a SOCKS proxy, which Plimsoll does not speak to", remedy
        )
    if address.scheme not in _PORTS or not address.hostname:
        raise InputError(field, shown_url(proxy), "is no HTTP proxy", "name it as http://HOST:PORT")
    return address


def _named(environment: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    """The variable in capitals, then the other one; not the empty ones."""
    for each in (name.upper(), name):
        if environment.get(each):
            yield each, environment[each]


def _is_direct(server: str, environment: Mapping[str, str]) -> bool:
    """Whether no proxy is used for this server, whatever the environment names."""
    address = urlsplit(server)
    host, port = (address.hostname or "").rstrip("."), address.port or _PORTS.get(address.scheme)
    number = _number(host)
    if host == "localhost" or (number is not None and number.is_loopback):
        return True
    entries = next((value for _, value in _named(environment, "no_proxy")), "")
    return any(_covers(entry.strip().lower(), host, port, number) for entry in entries.split(","))


def _covers(
    entry: str, host: str, port: int | None, number: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> bool:
    """Whether an entry of NO_PROXY is about this server."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return number is not None and number in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, _, of_port = entry.rpartition(":") if entry.rpartition(":")[2].isdecimal() else (entry, "", "")
    if _number(entry) is not None:  # an IPv6 address has colons of its own
        name, of_port = entry, ""
    if not name or (of_port and int(of_port) != port):
        return False
    if (same := _number(name.strip("[]"))) is not None:
        return number == same
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
