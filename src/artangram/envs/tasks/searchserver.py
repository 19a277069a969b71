"""The API of the search task: a small HTTP server that enforces its rate limit.

`python -m artangram.envs.tasks.searchserver` prints the port it listens on. As outside APIs do, it
answers more than `limit` calls in any window of `window_s` with 429 and `Retry-After`, and takes
its time for the others: some `latency_s`, now and then several times that. It ends with its
standard input, so that it never outlives its parent.
"""

import argparse
import asyncio
import sys
from collections import deque
from random import Random

from aiohttp import web

from artangram.envs.tasks.search import QUESTIONS, fact

COUNTS = "counts"
SPREAD = 0.65
"""Of the latency's logarithm: one call in twenty takes 2.9 times the median or longer."""


class Window:
    """A sliding window of calls."""

    def __init__(self, limit: int, window_s: float) -> None:
        self._limit = limit
        self._window_s = window_s
        self._calls: deque[float] = deque()

    def admits(self, now: float) -> bool:
        while self._calls and self._calls[0] <= now - self._window_s:
            self._calls.popleft()
        if len(self._calls) >= self._limit:
            return False
        self._calls.append(now)
        return True


def application(limit: int, window_s: float, *, latency_s: float = 0.0) -> web.Application:
    """`GET /{index}?q=N`, and `GET /counts` for the number of refusals.

    `latency_s` is the median time that an answer takes.
    """
    window = Window(limit, window_s)
    chance = Random(0)
    counts = {"answered": 0, "refused": 0}

    async def look_up(request: web.Request) -> web.Response:
        index, wanted = request.match_info["index"], request.query.get("q", "")
        if index == COUNTS:
            return web.json_response(counts)
        if not window.admits(asyncio.get_running_loop().time()):
            counts["refused"] += 1
            return web.Response(status=429, headers={"Retry-After": str(window_s)})
        counts["answered"] += 1
        await asyncio.sleep(latency_s * chance.lognormvariate(0, SPREAD))
        if index not in QUESTIONS or not (wanted.isdecimal() and len(wanted) <= 3):
            return web.Response(status=404, text="no such thing")
        return web.Response(text=str(fact(index, int(wanted))))

    app = web.Application()
    app.router.add_get("/{index}", look_up)
    return app


async def serve(app: web.Application) -> None:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (address,) = runner.addresses
    print(address[1], flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--latency-s", type=float, default=0.0)
    said = parser.parse_args()
    asyncio.run(serve(application(said.limit, said.window_s, latency_s=said.latency_s)))


if __name__ == "__main__":
    main()
