"""What a sandbox may reach on the network, and what no sandbox may.

- `False` is nothing, `True` every public host, a tuple the hosts it names: all through a proxy on
  the sandbox's loopback, which resolves names outside and connects to the address it has checked.
- `"host"` is the machine's own network, with its loopback: for trusted code only.
- Whatever a caller asks for, no proxy connects to the machine itself, to a private, local or
  metadata address, unless the operator names that address.
"""

from __future__ import annotations

import ipaddress
import re
import socket

from msgspec import Struct

from artangram.core.errors import BadInput

Network = bool | str | tuple[str, ...]
HOST_NETWORK = "host"
USUAL_PORTS = (80, 443)
PROXY_PORT = 3128
PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"
NEAR = "localhost,127.0.0.1,::1"
PROXY_ENVIRON = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), PROXY_URL),
    "no_proxy": NEAR,
    "NO_PROXY": NEAR,
}

_NAME = re.compile(r"(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,10}")
_METADATA = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200")))
"""Of clouds, where the address does not show it."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostRule(Struct, frozen=True):
    """A host by name or address, one port of it or the usual ones; `*.` is any name below."""

    host: str
    ports: tuple[int, ...] = USUAL_PORTS

    def allows(self, host: str, port: int) -> bool:
        if port not in self.ports:
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host


def host_rule(text: str) -> HostRule:
    """`name`, `name:port`, `*.name`, an address, `[v6]:port`. Raises `BadInput`."""
    host, port = split_port(text)
    if port == 0 or not (_is_address(host) or _NAME.fullmatch(host)):
        fix = "give names or addresses, as in pypi.org, *.pythonhosted.org or 10.1.2.3:3141"
        raise BadInput("network", f"{text[:80]!r} is not a host", fix)
    return HostRule(host, USUAL_PORTS if port is None else (port,))


def split_port(text: str) -> tuple[str, int | None]:
    """Host and port of an authority; a port that is not one is 0."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        told = rest.removeprefix(":") if rest.startswith(":") else ("" if not rest else "x")
        has_port = bool(rest)
    elif text.count(":") > 1:
        host, told, has_port = text, "", False
    else:
        host, colon, told = text.partition(":")
        has_port = bool(colon)
    host = host.lower().rstrip(".")
    if not has_port:
        return host, None
    is_port = told.isascii() and told.isdecimal() and len(told) < 6 and 0 < int(told) < 65536
    return host, int(told) if is_port else 0


def check_network(network: Network) -> None:
    """Raises `BadInput` for what is not a network of a sandbox."""
    if isinstance(network, str) and network != HOST_NETWORK:
        fix = f"give False, True, {HOST_NETWORK!r} or a list of hosts"
        raise BadInput("network", f"{network[:80]!r} is not a network", fix)
    if isinstance(network, tuple):
        for text in network:
            host_rule(text)


def is_proxied(network: Network) -> bool:
    """Does it go through a proxy?"""
    return network is True or isinstance(network, tuple)


class PrivateRule(Struct, frozen=True):
    """Addresses that are not public and yet permitted, by the operator."""

    network: str
    port: int | None
    name: str = ""
    """Of one address and port, which is reached by this name only; sandboxes alone know it."""

    @property
    def place(self) -> tuple[str, int]:
        """The address and port that a name stands for."""
        assert self.port is not None, "a rule with a name has a port"
        return str(ipaddress.ip_network(self.network).network_address), self.port

    def permits(self, address: Address, port: int) -> bool:
        if self.name:
            return False
        found = ipaddress.ip_network(self.network)
        is_in = address.version == found.version and address in found
        return is_in and self.port in (None, port)


def private_rule(text: str) -> PrivateRule:
    """`address`, `address:port`, `network/bits`, `name=address:port`. Raises `BadInput`."""
    name, has_name, where = text.rpartition("=")
    host, port = split_port(where)
    try:
        found = ipaddress.ip_network(host)
    except ValueError:
        found = None
    is_named = not has_name or (
        _NAME.fullmatch(name) and port and found and found.num_addresses == 1
    )
    if found is None or port == 0 or not is_named:
        fix = (
            "give 10.1.2.3:3141, 10.1.0.0/16 or, with a name for it, mirror.internal=10.1.2.3:3141"
        )
        raise BadInput("private", f"{text[:80]!r} is not an address", fix)
    return PrivateRule(str(found), port, name)


class NetworkPolicy(Struct, frozen=True, kw_only=True):
    """What the operator of a cluster lets callers ask for."""

    allow: Network = True
    """Nothing (False), any public host (True), these hosts, or even the machine's own network
    ("host")."""
    private: tuple[str, ...] = ()
    """Addresses that are not public, and which proxies may connect to all the same."""

    def __post_init__(self) -> None:
        check_network(self.allow)
        for text in self.private:
            private_rule(text)

    def check(self, wanted: Network) -> None:
        """Raises `BadInput` for what a caller may not ask for."""
        if wanted is False or wanted == () or self.allow == HOST_NETWORK:
            return
        if wanted == HOST_NETWORK:
            raise _refused("the machine's own network")
        if self.allow is True:
            return
        if self.allow is False or wanted is True:
            raise _refused("this network")
        assert isinstance(wanted, tuple)
        assert isinstance(self.allow, tuple)
        allowed = tuple(map(host_rule, self.allow))
        for text in wanted:
            one = host_rule(text)
            ports = {port for rule in allowed for port in rule.ports if rule.allows(one.host, port)}
            if not ports.issuperset(one.ports):
                raise _refused(text)


def _refused(what: str) -> BadInput:
    fix = "ask for what `network:` in the cluster's file allows"
    return BadInput("network", f"the operator does not offer {what}", fix)


def forbidden(text: str, port: int, private: tuple[PrivateRule, ...]) -> str:
    """Why no sandbox may connect to an address; empty if one may."""
    address = ipaddress.ip_address(text.partition("%")[0])
    inner = _inner(address)
    if any(rule.permits(one, port) for rule in private for one in (address, inner)):
        return ""
    for one in {address, inner}:
        if one in _METADATA or not one.is_global or one.is_multicast:
            return f"{text} is not a public address"
    return f"{text} is this machine" if _is_own(address) else ""


def _inner(address: Address) -> Address:
    """The IPv4 address that a form of IPv6 leads to, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_own(address: Address) -> bool:
    """Only addresses of the machine can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
