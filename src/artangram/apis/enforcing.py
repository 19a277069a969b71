"""An API that enforces its limit to the letter, to try clients against.

It counts every request when it arrives, in a sliding window, and refuses what is beyond. Requests
may carry an `x-caller`; what became of them is counted per caller.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic

import msgspec
from aiohttp import web
from msgspec import Struct

Respond = Callable[[web.Request], Awaitable[web.Response]]


class CallerCounts(Struct, kw_only=True):
    """What became of one caller's requests; times are the server's."""

    taken: int = 0
    refused: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    """Of those that were taken."""


class EnforcingApi:
    """A limit, and the callers that reached it."""

    def __init__(self, *, limit: int, window_s: float) -> None:
        self._limit = limit
        self._window_s = window_s
        self._taken: deque[float] = deque()
        self.served: dict[str, CallerCounts] = {}

    def take(self, caller: str = "") -> float | None:
        """Use up one call: `None`, or how long it takes until there is one."""
        now = monotonic()
        while self._taken and self._taken[0] + self._window_s <= now:
            self._taken.popleft()
        served = self.served.setdefault(caller, CallerCounts(first_at=now))
        if len(self._taken) >= self._limit:
            served.refused += 1
            return self._taken[0] + self._window_s - now
        self._taken.append(now)
        served.taken += 1
        served.last_at = now
        return None

    async def respond(self, request: web.Request) -> web.Response:
        """The answer to any request; `/served` answers with the counts and resets them."""
        if request.path == "/served":
            counts, self.served = self.served, {}
            return web.Response(body=msgspec.json.encode(counts))
        wait_s = self.take(request.headers.get("x-caller", ""))
        if wait_s is None:
            return web.json_response({"query": request.query.get("q", "")})
        return web.Response(status=429, headers={"Retry-After": f"{wait_s:.3f}"})


@asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[str]:
    """The address of a server on this machine that responds so to everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def serve(limit: int, window_s: float) -> None:
    """Serve for ever; the first line of standard output is the address."""
    async with serving(EnforcingApi(limit=limit, window_s=window_s).respond) as url:
        print(url, flush=True)
        await asyncio.Event().wait()
