"""The few asyncio helpers that all packages share.

- `uncancelled` lets a clean-up finish even when its caller is cancelled meanwhile.
- `Background` owns tasks that no coroutine awaits: they end with it, and it reports their errors.
- `listening` and `served` are how an application is reached over HTTP, `has_token` who may use it.
"""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, TypeVar

from artangram.core.errors import BadInput

T = TypeVar("T")

MOST_UNMET = 2048
"""Connections that wait to be taken."""

KEPT_S = 75
"""How long a connection without a request stays open: far longer than clients keep one. The client
must close first: a request on a connection that the server closes is lost, and may not be
repeatable."""


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
    ear = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind((host, port))
        ear.listen(MOST_UNMET)
    except (OSError, OverflowError) as error:
        ear.close()
        problem = getattr(error, "strerror", None) or str(error)
        fix = "name another one; port 0 takes a free one"
        raise BadInput("address", f"{host} port {port}: {problem}", fix) from None
    return ear


def has_token(headers: Mapping[str, str], token: str) -> bool:
    """Do the headers of a request carry `token`? Takes as long for a wrong one as for the right."""
    given = headers.get("authorization", "").removeprefix("Bearer ")
    return secrets.compare_digest(given.encode(), token.encode())


@asynccontextmanager
async def served(application: Any, ear: socket.socket) -> AsyncIterator[str]:
    """Serve an ASGI application while the block lasts; gives its address."""
    import uvicorn  # Needs an extra.

    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEPT_S,
    )
    server = uvicorn.Server(config)
    # The code that runs the loop handles signals.
    server.capture_signals = nullcontext  # type: ignore[assignment,method-assign]
    serving = asyncio.create_task(server.serve(sockets=[ear]))
    host, port = ear.getsockname()[:2]
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        server.should_exit = True
        # The application is closed after this, so no request may be in flight then.
        await uncancelled(asyncio.wait({serving}))
