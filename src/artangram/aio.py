"""The few asyncio helpers that all packages share.

- `uncancelled` lets a clean-up finish even when its caller is cancelled meanwhile.
- `Background` owns tasks that no coroutine awaits: they end with it, and it reports their errors.
- `listening` and `served` are how an application is reached over HTTP, `has_token` checks a caller.
  Whatever callers send, the head of a request and a silent connection are bounded.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from artangram.core.errors import BadInput

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
else:  # Needs an extra; `served` puts the two together.
    HttpToolsProtocol = asyncio.Protocol

T = TypeVar("T")

MOST_UNMET = 2048
"""Connections that wait to be taken."""

KEPT_S = 75
"""How long a connection without a request stays open: far longer than clients keep one. The client
must close first: a request on a connection that the server closes is lost, and may not be
repeatable."""

MOST_HEAD_BYTES = 1 << 16
"""Address and headers of one request. They are in memory before its token can be looked at."""

HEAD_S = 30.0
"""How long a caller may take from connecting, or from the first byte of a request, to the end of
its headers."""

ACCEPT_AGAIN_S = 1.0
"""How long no connection is accepted after the machine had no descriptor or memory for one."""

PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 10, 5, 4
"""A request may wait for hours, and a machine that loses power says nothing: the kernel asks it
whether the connection is still there. After 30 s without an answer the request has none."""

_LOG = logging.getLogger(__name__)


async def uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Let `work` finish even if we are cancelled meanwhile; then be cancelled."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})  # wait() does not cancel what it waits for
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at: being cancelled is the news, not its failure
        raise cancelled
    return task.result()


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Let `future` raise `error`; a caller that has gone away does not complain about it."""
    if not future.done():
        future.set_exception(error)
        future.exception()


class Background:
    """Tasks that no caller awaits. Calls `on_error` for those that fail."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`. Cancel the task to end it early."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def close(self) -> None:
        """Cancel what still runs; return when all of it has ended."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(set(self._tasks))
            # Give the callbacks that forget the tasks their turn.
            await asyncio.sleep(0)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)


def listening(host: str, port: int) -> socket.socket:
    """A socket to which callers can connect from now on. Raises `BadInput` if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only of sockets that say TCP does asyncio turn off the wait for more to send.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(MOST_UNMET)
    except (OSError, OverflowError) as error:
        listener.close()
        problem = getattr(error, "strerror", None) or str(error)
        fix = "name another one; port 0 takes a free one"
        raise BadInput("address", f"{host} port {port}: {problem}", fix) from None
    return listener


def probe_peer(connection: socket.socket) -> None:
    """End `connection` when the other machine no longer knows it, even if it is sent nothing."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # Linux; others have probes of two hours.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


def has_token(headers: Mapping[str, str], token: str) -> bool:
    """Do the headers of a request carry `token`? Takes as long for a wrong one as for the right."""
    given = headers.get("authorization", "").removeprefix("Bearer ")
    return secrets.compare_digest(given.encode(), token.encode())


class HeadGuard(HttpToolsProtocol):
    """Answers 431 to a head that is too long, closes a connection whose caller falls silent.

    While an answer is under way there is no limit here; an application bounds its bodies itself.
    """

    _awaits_head = True
    _head_bytes = 0
    _is_too_long = False
    _silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._awaits_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._awaits_head and self._head_bytes > MOST_HEAD_BYTES:
            self._is_too_long = True
            self.send_400_response("")
        elif self.cycle is None or self.cycle.response_complete:
            self._expect_more()

    def on_headers_complete(self) -> None:
        self._awaits_head = False
        self._heard()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_HEAD_BYTES:
            self._is_too_long = True
            raise ValueError(f"{size} bytes of address and headers")  # Ends in the method below.
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._awaits_head, self._head_bytes = True, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self._is_too_long:
            super().send_400_response(msg)
            return
        head = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
        text = f"address and headers have more than {MOST_HEAD_BYTES} bytes; send shorter ones"
        self.transport.write(f"{head}content-length: {len(text)}\r\n\r\n{text}".encode())
        self.transport.close()

    def _expect_more(self) -> None:
        if self._silence is None:
            loop = asyncio.get_running_loop()
            self._silence = loop.call_later(HEAD_S, self.transport.close)

    def _heard(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


async def _accept(listener: socket.socket, connected: Callable[[], asyncio.Protocol]) -> None:
    """Take connections for ever; wait a while when the machine has no room for another one."""
    loop, is_full = asyncio.get_running_loop(), False
    connecting = Background(lambda error: None)  # Of a caller that has gone again.
    listener.setblocking(False)
    try:
        while True:
            try:
                caller, _ = await loop.sock_accept(listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if not is_full:
                    fix = "wait for others to end, or raise the limit (ulimit -n)"
                    _LOG.warning("no further connection is accepted: %s; %s", error.strerror, fix)
                is_full = True
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            is_full = False
            connecting.start(_connect(caller, connected))
            await asyncio.sleep(0)  # Others have their turn while many connect.
    finally:
        await connecting.close()


async def _connect(caller: socket.socket, connected: Callable[[], asyncio.Protocol]) -> None:
    try:
        probe_peer(caller)
        await asyncio.get_running_loop().connect_accepted_socket(connected, caller)
    except BaseException:
        caller.close()
        raise


@asynccontextmanager
async def served(application: Any, listener: socket.socket) -> AsyncIterator[str]:
    """Serve an ASGI application while the block lasts; gives its address."""
    import uvicorn  # Needs an extra.
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    guarded: Any = type("GuardedProtocol", (HeadGuard, HttpToolsProtocol), {})
    config = uvicorn.Config(
        application,
        http=guarded,
        ws="none",
        log_level="error",  # A warning for each malformed request would fill a disk.
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEPT_S,
    )
    server = uvicorn.Server(config)
    # The code that runs the loop handles signals.
    server.capture_signals = nullcontext  # type: ignore[assignment,method-assign]
    serving = asyncio.create_task(server.serve(sockets=[]))
    host, port = listener.getsockname()[:2]
    accepting = None
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        states = server.server_state, server.lifespan.state
        accepting = asyncio.create_task(_accept(listener, partial(guarded, config, *states)))
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await uncancelled(_stop(server, serving, accepting, listener))


async def _stop(
    server: Any,
    serving: asyncio.Task[None],
    accepting: asyncio.Task[None] | None,
    listener: socket.socket,
) -> None:
    """As one piece: a caller that is cancelled again must not leave half of it undone."""
    if accepting is not None:
        accepting.cancel()
        await asyncio.wait({accepting})
    listener.close()
    server.should_exit = True
    # The application is closed after this, so no request may be in flight then.
    await asyncio.wait({serving})
