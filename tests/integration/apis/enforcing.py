"""A real HTTP server that enforces a sliding window, as strict as an outside API can be."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from aiohttp import web


class Enforcing:
    """Counts every request at its arrival; refuses what is beyond the limit."""

    def __init__(self, *, limit: int, window_s: float, says_when: bool = True) -> None:
        self._limit = limit
        self._window_s = window_s
        self._says_when = says_when
        self._taken: deque[float] = deque()
        self.num_taken = 0
        self.num_refused = 0

    def take(self) -> float | None:
        """Use up one call: `None`, or for how long there is none."""
        now = monotonic()
        while self._taken and self._taken[0] + self._window_s <= now:
            self._taken.popleft()
        if len(self._taken) >= self._limit:
            return self._taken[0] + self._window_s - now
        self._taken.append(now)
        return None

    async def respond(self, request: web.Request) -> web.Response:
        wait_s = self.take()
        if wait_s is None:
            self.num_taken += 1
            return web.json_response({"query": request.query.get("q", "")})
        self.num_refused += 1
        headers = {"Retry-After": f"{wait_s:.3f}"} if self._says_when else {}
        return web.Response(status=429, headers=headers)


@asynccontextmanager
async def served(respond: Callable[[web.Request], object]) -> AsyncIterator[str]:
    """The address of a server that responds so to everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)  # type: ignore[arg-type]
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
