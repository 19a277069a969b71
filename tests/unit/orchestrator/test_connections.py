"""Hostile connections: heads without end, silence, and no free descriptor."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from busy_machine import PATIENCE_S
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from artangram import aio


async def _hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def _length(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


@asynccontextmanager
async def a_server() -> AsyncIterator[tuple[str, int]]:
    routes = [Route("/", _hello), Route("/length", _length, methods=["POST"])]
    with aio.listening("127.0.0.1", 0) as listener:
        async with aio.served(Starlette(routes=routes), listener) as url:
            yield str(urlsplit(url).hostname), int(urlsplit(url).port or 0)


async def answer(at: tuple[str, int], *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """All that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection(*at)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        [GET + b"x: " + b"a" * 70_000 + b"\r\n\r\n"],
        [GET + b"x: ", *[b"a" * 60_000] * 40],
        [GET, *[b"x: a\r\n" * 10_000] * 40],
        [b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"],
    ],
    ids=["one chunk", "a value without end", "fields without end", "address"],
)
async def test_a_head_that_is_too_long_is_refused(pieces: list[bytes]) -> None:
    async with a_server() as at:
        found = await answer(at, *pieces)
        # A caller that still sends may see its connection reset before it reads the answer.
        assert found == b"" or found.startswith(b"HTTP/1.1 431 ")
        assert b"hello" in await answer(at, GET + b"Connection: close\r\n\r\n")


async def test_a_long_body_is_no_long_head() -> None:
    body = b"x" * 300_000
    head = b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n"
    async with a_server() as at:
        found = await answer(at, head + b"\r\n" + body, head + b"Connection: close\r\n\r\n", body)
        assert found.count(b"300000") == 2


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [GET],
        [b"\r\n"],
        [GET + b"\r\n", GET],
        [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"abc"],
    ],
    ids=["silent", "half a head", "an empty line", "half a second head", "half a refused body"],
)
async def test_a_connection_that_falls_silent_is_closed(
    pieces: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "HEAD_S", 0.2)
    async with a_server() as at:
        await answer(at, *pieces, pause_s=0.1)  # Returns when the server closes.
        assert b"hello" in await answer(at, GET + b"Connection: close\r\n\r\n")


async def test_a_slow_answer_and_an_idle_connection_outlive_the_limit_for_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aio, "HEAD_S", 0.2)
    async with a_server() as at:
        reader, writer = await asyncio.open_connection(*at)
        for _ in range(2):
            writer.write(GET + b"\r\n")
            assert b"hello" in await reader.readuntil(b"hello")
            await asyncio.sleep(0.5)
        writer.close()


async def test_a_peer_that_vanished_is_probed_within_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed: list[list[int]] = []
    probe = aio.probe_peer

    def noted(connection: socket.socket) -> None:
        probe(connection)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        probed.append([connection.getsockopt(socket.IPPROTO_TCP, one) for one in options])

    monkeypatch.setattr(aio, "probe_peer", noted)
    async with a_server() as at:
        await answer(at, GET + b"Connection: close\r\n\r\n")
    ((after_s, every_s, times),) = probed
    assert after_s + every_s * times <= 30


async def test_without_descriptors_accepting_backs_off_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0
    accept = socket.socket.accept

    def exhausted(listener: socket.socket) -> tuple[socket.socket, object]:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(aio, "ACCEPT_AGAIN_S", 0.05)
    async with a_server() as at:
        monkeypatch.setattr(socket.socket, "accept", exhausted)
        with caplog.at_level(logging.WARNING):
            assert b"hello" in await answer(at, GET + b"Connection: close\r\n\r\n")
        assert 4 <= tries < 10
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if "Too many open files" in text]) == 1
