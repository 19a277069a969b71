"""The only way out of a sandbox: an HTTP proxy on its loopback, served by this process.

- It speaks `CONNECT` (HTTPS and anything else over TCP) and plain HTTP with absolute URLs.
- A host that is not allowed is answered 403 before any name is resolved. A name is resolved once,
  here, and the connection goes to the very address that was checked: one that changes its mind
  (DNS rebinding) gains nothing. Redirects are the client's, and come here again.
- It holds no more than a few buffers per connection, and `MOST_CONNECTIONS` of those.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

from artangram.aio import Background
from artangram.sandbox.network import (
    HostRule,
    Network,
    PrivateRule,
    forbidden,
    host_rule,
    private_rule,
    split_port,
)

MOST_CONNECTIONS = 64
MOST_HEAD_BYTES = 64 << 10
HEAD_PATIENCE_S = 30.0
CONNECT_PATIENCE_S = 20.0
PIECE_BYTES = 64 << 10
_NOT_PASSED_ON = (b"host", b"connection", b"keep-alive", b"te", b"upgrade")


class ProxyDenied(Exception):
    """Answered with this status and reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class SandboxProxy:
    """Serves one sandbox until it is closed."""

    def __init__(self, network: Network, *, private: tuple[str, ...]) -> None:
        self._rules: tuple[HostRule, ...] | None = None
        if isinstance(network, tuple):
            self._rules = tuple(map(host_rule, network))
        self._private: tuple[PrivateRule, ...] = tuple(map(private_rule, private))
        self._server: asyncio.Server | None = None
        self._free = asyncio.Semaphore(MOST_CONNECTIONS)
        self._background = Background(lambda error: None)

    async def serve(self, listener: socket.socket) -> None:
        """From now on; `listener` is closed with it."""
        self._server = await asyncio.start_server(
            self._on_connection, sock=listener, limit=MOST_HEAD_BYTES
        )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._background.close()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        running = self._background.start(self._served(reader, writer))
        running.add_done_callback(lambda _: writer.close())

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._free:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                try:
                    await self._passed(reader, writer)
                except ProxyDenied as denied:
                    text = f"artangram: {denied}\n".encode()
                    head = f"HTTP/1.1 {denied.status}\r\nContent-Type: text/plain\r\n"
                    head += f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
                    writer.write(head.encode() + text)
                    await writer.drain()

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise ProxyDenied("431 Too Large", "the head of the request is too long") from None
        line, *headers = head[:-4].split(b"\r\n")
        parts = line.decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            raise ProxyDenied("400 Bad Request", "this is not a request to a proxy")
        method, target, _ = parts
        if method == "CONNECT":
            host, port = split_port(target)
            first, told = b"", b"HTTP/1.1 200 Connection established\r\n\r\n"
        else:
            host, port, first = _plain(method, target, headers)
            told = b""
        upstream, to_upstream = await self._connected(host, port)
        try:
            writer.write(told)
            to_upstream.write(first)
            await _relayed((reader, to_upstream), (upstream, writer))
        finally:
            to_upstream.close()

    async def _connected(
        self, host: str, port: int | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not host or not port:
            raise ProxyDenied("400 Bad Request", "the request names no host and port")
        if self._rules is not None and not any(rule.allows(host, port) for rule in self._rules):
            raise ProxyDenied("403 Forbidden", f"{host}:{port} is not allowed for this sandbox")
        for rule in self._private:
            if rule.name == host:
                return await _opened(*rule.place)
        status, problem = "502 Bad Gateway", "it has no address"
        for address in await _addresses(host, port):
            if why := forbidden(address, port, self._private):
                status, problem = "403 Forbidden", why
                continue
            try:
                return await _opened(address, port)
            except ProxyDenied as denied:
                problem = str(denied)
        raise ProxyDenied(status, f"{host}:{port}: {problem}")


async def _opened(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(CONNECT_PATIENCE_S):
            return await asyncio.open_connection(address, port)
    except TimeoutError:
        raise ProxyDenied("502 Bad Gateway", "it does not answer") from None
    except OSError as error:
        raise ProxyDenied("502 Bad Gateway", error.strerror or str(error)) from None


def _plain(method: str, target: str, headers: list[bytes]) -> tuple[str, int | None, bytes]:
    """Host, port and the head to send there, of a request with an absolute URL."""
    try:
        url = urlsplit(target)
        host, port = split_port(url.netloc.rpartition("@")[2])
    except ValueError:
        raise ProxyDenied("400 Bad Request", "the URL cannot be read") from None
    if url.scheme.lower() != "http":
        raise ProxyDenied("400 Bad Request", "ask this proxy for http URLs, or to CONNECT")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [line for line in headers if not _is_for_us(line)]
    head = f"{method} {path} HTTP/1.1\r\nHost: {url.netloc.rpartition('@')[2]}\r\n"
    lines = [head.encode("latin-1").removesuffix(b"\r\n"), *kept, b"Connection: close", b"", b""]
    return host, 80 if port is None else port, b"\r\n".join(lines)


def _is_for_us(line: bytes) -> bool:
    name = line.partition(b":")[0].strip().lower()
    return name in _NOT_PASSED_ON or name.startswith(b"proxy-")


async def _addresses(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ProxyDenied("502 Bad Gateway", f"{host} has no address") from None
    return list(dict.fromkeys(str(where[4][0]) for where in found))


async def _relayed(
    *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Copy both ways until both have ended, or one has failed."""
    async with asyncio.TaskGroup() as copying:
        for source, target in ways:
            copying.create_task(_copied(source, target))


async def _copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            target.write(piece)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
