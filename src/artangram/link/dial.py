"""How two ends come together: a socket that both have, a unix socket, or TCP with or without TLS.

An address is a connected socket, the path of a unix socket, or a host and a port.
"""

import asyncio
import contextlib
import math
import socket
from asyncio import BaseTransport
from collections.abc import Callable
from pathlib import Path
from ssl import SSLContext
from typing import Any, TypeVar

from artangram.link.errors import LinkEnded
from artangram.link.link import Greet, Link, LinkUser
from artangram.link.terms import HELLO_PATIENCE_S, LinkTerms

R = TypeVar("R")

LinkAddress = socket.socket | Path | tuple[str, int]

Verify = Callable[[BaseTransport], None]
"""Looks at a connection before anything is sent over it; raises `LinkRefused`."""


async def dial(
    address: LinkAddress,
    terms: LinkTerms[R],
    user: LinkUser[R],
    *,
    hello: object = None,
    tls: SSLContext | None = None,
    server_name: str | None = None,
    patience_s: float = HELLO_PATIENCE_S,
) -> Link[R]:
    """Connect and say hello. Raises `OSError`, `LinkRefused` or `LinkEnded`.

    `user` may hear records before this returns.
    """
    how: dict[str, Any] = {"tls": tls, "server_name": server_name, "patience_s": patience_s}
    return await dial_for(address, terms, lambda link: user, hello=hello, **how)


async def dial_for(
    address: LinkAddress,
    terms: LinkTerms[R],
    user_of: Callable[[Link[R]], LinkUser[R]],
    *,
    hello: object = None,
    tls: SSLContext | None = None,
    server_name: str | None = None,
    verify: Verify | None = None,
    patience_s: float = HELLO_PATIENCE_S,
) -> Link[R]:
    """As `dial`, for a user that has to know its link first."""

    def made() -> Link[R]:
        return Link(
            terms, lambda link: (user_of(link), None), hello=hello, dials=True, verify=verify
        )

    return await _met(_connected(address, made, tls, server_name), patience_s)


async def accept(
    sock: socket.socket,
    terms: LinkTerms[R],
    user: LinkUser[R],
    *,
    hello: object = None,
    patience_s: float = HELLO_PATIENCE_S,
) -> Link[R]:
    """The other end of a connected socket: wait for the peer's hello and answer it."""

    def made() -> Link[R]:
        return Link(terms, lambda link: (user, hello), hello=None, dials=False)

    return await _met(_connected(sock, made, None, None), patience_s)


async def listen(
    address: Path | tuple[str, int] | socket.socket,
    terms: LinkTerms[R],
    greet: Greet[R],
    *,
    tls: SSLContext | None = None,
    patience_s: float = HELLO_PATIENCE_S,
) -> asyncio.Server:
    """Accept links. `greet` is asked about every peer that has said hello."""
    loop = asyncio.get_running_loop()

    def made() -> Link[R]:
        link = Link(terms, greet, hello=None, dials=False)
        loop.call_later(patience_s, _give_up, link, patience_s)
        return link

    if isinstance(address, Path):
        return await loop.create_unix_server(made, str(address), ssl=tls)
    if isinstance(address, socket.socket):
        if address.family == socket.AF_UNIX:
            return await loop.create_unix_server(made, sock=address, ssl=tls)
        return await loop.create_server(made, sock=address, ssl=tls)
    return await loop.create_server(made, *address, ssl=tls)


async def _connected(
    address: LinkAddress, made: Callable[[], Link[R]], tls: SSLContext | None, name: str | None
) -> Link[R]:
    loop = asyncio.get_running_loop()
    how: dict[str, Any] = {"ssl": tls, "server_hostname": name if tls else None}
    if isinstance(address, Path):
        _, link = await loop.create_unix_connection(made, str(address), **how)
    elif isinstance(address, tuple):
        _, link = await loop.create_connection(made, *address, **how)
    elif address.family == socket.AF_UNIX:
        _, link = await loop.create_unix_connection(made, sock=address, **how)
    else:
        _, link = await loop.create_connection(made, sock=address, **how)
    return link


async def _met(connecting: Any, patience_s: float) -> Link[R]:
    link: Link[R] | None = None
    try:
        async with asyncio.timeout(None if patience_s == math.inf else patience_s):
            link = await connecting
            await asyncio.shield(link.met)
    except BaseException as error:
        if link is not None:
            with contextlib.suppress(Exception):
                await link.aclose()
        if isinstance(error, TimeoutError):
            raise LinkEnded(f"no hello came within {patience_s:g} s") from None
        raise
    return link


def _give_up(link: Link[R], patience_s: float) -> None:
    """The peer connected and never said hello."""
    if not link.met.done():
        link.abort(LinkEnded(f"no hello came within {patience_s:g} s"))
