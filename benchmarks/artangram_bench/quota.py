"""Does a cluster stay within an API's limit, and how much of the limit does it use?

- Everything is real: the API is a process that counts requests when they arrive and answers 429
  beyond its limit; the callers are processes of their own, connected to one cluster over HTTP.
- The share of the allowed rate is that of a perfect client: how long one would take that leaves no
  call unused, over how long we took. Both are counted by the API, from its first to its last call.
- The API and the cluster go before other processes of this machine, where that may be asked for: an
  API outside would not wait for a core here.
- Then another client calls the API as well, as fast as the API lets it.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Annotated

import aiohttp
import msgspec
import typer
from msgspec import Struct

from artangram.apis import ApiSpec
from artangram.apis.enforcing import CallerCounts
from artangram.cli.output import Printer
from artangram.core.errors import InfraFailed
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.orchestrator.connect import connect
from artangram.orchestrator.local import running
from artangram.orchestrator.server import serving
from artangram.sandbox.fake import FakeProvider
from artangram.sandbox.inside.linux import raise_priority
from artangram_bench.result import Origin

IN_FLIGHT = 200
"""Calls that each client has queued or in flight: together more than one window takes."""
RIVAL_WINDOWS = 3
"""For how long another client calls as well."""
RIVAL_LIMIT, RIVAL_WINDOW_S = 200, 2.0
TOKEN = "bench"
SHARE_AT_LEAST = 0.95

_API = """
import asyncio; from artangram.apis.enforcing import serve; asyncio.run(serve({}, {}))
"""
_CLIENT = """
import asyncio; from artangram_bench.quota import client; asyncio.run(client({!r}, {}, {}))
"""


class SingleProcess(Struct, frozen=True, kw_only=True):
    """We are the only caller."""

    calls: int
    limit: int
    window_s: float
    answered: int
    refused: int
    took_s: float
    best_s: float
    share: float


class Shared(Struct, frozen=True, kw_only=True):
    """Another client calls, too."""

    calls: int
    answered: int
    refused: int
    """Of ours, by the API; each was made again."""
    rival_taken: int
    rival_refused: int
    took_s: float
    rival_s: float


class QuotaFigures(Struct, frozen=True, kw_only=True):
    clients: int
    alone: SingleProcess
    shared: Shared
    load_after: float


def quota(
    calls: Annotated[int, typer.Option(help="Calls while no other client calls.", min=1)] = 10_000,
    clients: Annotated[int, typer.Option(help="Processes that call.", min=1)] = 8,
    limit: Annotated[int, typer.Option(help="Calls in a window.", min=1)] = 500,
    window: Annotated[float, typer.Option(help="Length of the window, in seconds.", min=0.1)] = 5.0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """An API that enforces its limit, called by many processes; then with another client beside."""
    output, origin = Printer(json), Origin()
    raise_priority()
    with output.progress() as progress:
        progress.add_task("quota")
        figures = asyncio.run(_figures(-(-calls // clients), clients, limit=limit, window_s=window))
    _print(output, figures)
    output.json(origin.result("Does a cluster keep within an API's limit?", figures))


async def _figures(each: int, clients: int, *, limit: int, window_s: float) -> QuotaFigures:
    return QuotaFigures(
        clients=clients,
        alone=await _alone(each, clients, limit=limit, window_s=window_s),
        shared=await _shared(clients),
        load_after=round(os.getloadavg()[0], 2),
    )


async def _alone(each: int, clients: int, *, limit: int, window_s: float) -> SingleProcess:
    async with _scene(limit, window_s) as scene:
        answered = await _played(await scene.ready([each] * clients))
        ours = (await scene.served())["client"]
    took_s, best_s = ours.last_at - ours.first_at, ((ours.taken - 1) // limit) * window_s
    return SingleProcess(
        calls=each * clients,
        limit=limit,
        window_s=window_s,
        answered=answered,
        refused=ours.refused,
        took_s=took_s,
        best_s=best_s,
        share=best_s / took_s,
    )


async def _shared(num_clients: int) -> Shared:
    async with _scene(RIVAL_LIMIT, RIVAL_WINDOW_S) as scene:
        each = RIVAL_LIMIT * RIVAL_WINDOWS // num_clients
        rival_s = RIVAL_WINDOWS * RIVAL_WINDOW_S
        clients = await scene.ready([each] * num_clients)
        began_at = perf_counter()
        rival = asyncio.create_task(_rival(scene.url, rival_s))
        answered = await _played(clients)
        took_s = perf_counter() - began_at
        await rival
        served = await scene.served()
    return Shared(
        calls=each * num_clients,
        answered=answered,
        refused=served["client"].refused,
        rival_taken=served["rival"].taken,
        rival_refused=served["rival"].refused,
        took_s=took_s,
        rival_s=rival_s,
    )


async def _rival(url: str, for_s: float) -> None:
    """A client that calls until it is refused, and again a moment later."""
    ends_at = perf_counter() + for_s
    async with aiohttp.ClientSession(headers={"x-caller": "rival"}) as session:
        while perf_counter() < ends_at:
            async with session.get(url) as response:
                if response.status != 200:
                    await asyncio.sleep(0.05)


class _Scene:
    """An API, a cluster that calls it, and the cluster's clients, ready to begin."""

    def __init__(self, url: str, client: str, stack: AsyncExitStack) -> None:
        self.url = url
        self._client = client
        self._stack = stack

    async def ready(self, calls: list[int]) -> list[Process]:
        """Clients, one for each number of calls, that only wait for a word."""
        clients = [
            await self._stack.enter_async_context(
                _process(_CLIENT.format(self._client, number, count))
            )
            for number, count in enumerate(calls)
        ]
        for one in clients:
            await _line(one)  # It is connected.
        return clients

    async def served(self) -> dict[str, CallerCounts]:
        """What the API says."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/served") as response,
        ):
            return msgspec.json.decode(await response.read(), type=dict[str, CallerCounts])


@asynccontextmanager
async def _scene(limit: int, window_s: float) -> AsyncIterator[_Scene]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(_process(_API.format(limit, window_s)))
        url = await _line(api)
        spec = ApiSpec(base_url=url, headers={"x-caller": "client"}, limit=limit, window_s=window_s)
        orchestrator, _ = await stack.enter_async_context(
            running(provider=FakeProvider(), options=ClusterOptions(apis={"search": spec}))
        )
        client = await stack.enter_async_context(serving(orchestrator, token=TOKEN))
        yield _Scene(url, client, stack)


@asynccontextmanager
async def _process(script: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=PIPE, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _played(clients: list[Process]) -> int:
    """Let all begin; how many calls were answered in the end."""
    for one in clients:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
    return sum([int(await _line(one)) for one in clients])


async def _line(process: Process) -> str:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise InfraFailed("a process of the bench died; its complaint is above")
    return line.decode().strip()


async def client(url: str, number: int, calls: int) -> None:
    """One client process: connects, waits for a word, calls, and prints how many were answered."""
    os.setpriority(os.PRIO_PROCESS, 0, 0)  # It began with that of the cluster.
    async with connect(url, token=TOKEN) as client:
        await client.status()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        search, room = client.api("search"), asyncio.Semaphore(IN_FLIGHT)

        async def called(query: str) -> bool:
            async with room:
                answer = await search.get("find", params={"q": query}, job=f"job-{number}")
            return bool(answer.json()["query"] == query)

        queries = [f"{number}-{n}" for n in range(calls)]
        ends = await asyncio.gather(*map(called, queries), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            print(f"lost: {end!r}", file=sys.stderr)
    print(sum(end is True for end in ends), flush=True)


def _print(output: Printer, figures: QuotaFigures) -> None:
    alone, shared = figures.alone, figures.shared
    output.table(
        f"{figures.clients} clients, {alone.limit} calls per {alone.window_s:g} s allowed",
        ["", "calls", "answered", "refused", "s", "best s", "share"],
        [
            [
                "alone",
                str(alone.calls),
                str(alone.answered),
                str(alone.refused),
                f"{alone.took_s:.1f}",
                f"{alone.best_s:.1f}",
                f"{alone.share:.1%}",
            ]
        ],
    )
    output.console.print(
        f"Goals: 0 refused, share at least {SHARE_AT_LEAST:.0%}. With a rival that took "
        f"{shared.rival_taken} calls in {shared.rival_s:g} s: {shared.answered} of {shared.calls} "
        f"answered, {shared.refused} refused and made again, {shared.took_s:.1f} s. "
        f"Load afterwards {figures.load_after}.",
        soft_wrap=True,
    )
