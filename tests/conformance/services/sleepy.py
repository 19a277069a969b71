"""A server that sleeps and wakes as vLLM's does, and answers what it was asked."""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Sleepy:
    """One server; asleep it answers nobody."""

    def __init__(self) -> None:
        self.is_asleep = False
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def open(self, *, port: int = 0, more: Mapping[str, Handler] | None = None) -> None:
        """Listen at `port`, or a free one; `more` is what else can be got."""
        app = web.Application()
        for path, handler in (more or {}).items():
            app.router.add_get(path, handler)
        app.router.add_post("/wake_up", self._wake)
        app.router.add_post("/sleep", self._sleep)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _wake(self, request: web.Request) -> web.Response:
        self.is_asleep = False
        return web.Response()

    async def _sleep(self, request: web.Request) -> web.Response:
        if request.query.get("level") != "1":
            return web.Response(status=400)
        self.is_asleep = True
        return web.Response()

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.is_asleep:
            return web.Response(status=500, text="asleep")
        if b"raise" in body or body == b"{":
            return web.Response(status=400, text="as you wished")
        return web.Response(body=body)
