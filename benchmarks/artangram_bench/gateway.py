"""How much time does the gateway add to a request, and how many can it serve? With LiteLLM beside.

- One scripted engine behind HTTP answers at once. Chats are sent to it directly, through our
  gateway and through LiteLLM; each server is one process. The difference to "directly" is what a
  gateway adds.
- Callers send their next chat when the last one is answered. Cells are interleaved: everything
  once, in random order, then again.
- A burst: requests of OpenAI's own client, all at once, none of which is repeated.
- Sessions: many agents at once, each a conversation of its own with several turns, before an engine
  that takes its time, so that all of them are in a turn together.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median, quantiles
from time import perf_counter
from typing import Annotated

import aiohttp
import msgspec
import typer
from msgspec import Struct
from openai import AsyncOpenAI, OpenAIError
from openai.types.chat import ChatCompletionMessageParam

from artangram.cli.output import Printer
from artangram_bench.gatewaypeers import Contender, NotHere, engine, gateway, litellm
from artangram_bench.gatewayserver import MODEL, REPLY, WORDS
from artangram_bench.result import Origin

CONCURRENCIES = (1, 64, 512)
TIMES_LITELLM_AT_LEAST, SHARE_OF_ADDED_AT_MOST = 10.0, 1 / 3
"""The first for 64 callers."""
BURST = 200
SESSIONS_AT_LEAST = 1000
TURNS = 3
SLOW_TOKEN_S = 0.3
"""Ten tokens a reply: long enough for every agent to be in its turn at the same time."""


class Cell(Struct, frozen=True, kw_only=True):
    """One server, with a number of concurrent callers."""

    name: str
    concurrency: int
    per_s: list[float]
    """One figure a round."""
    p50_ms: float
    p95_ms: float
    failed: int


class Ratio(Struct, frozen=True, kw_only=True):
    """The gateway beside LiteLLM."""

    concurrency: int
    throughput: float
    added_p50_ms: float
    added_p95_ms: float
    litellm_added_p50_ms: float
    litellm_added_p95_ms: float
    share_of_added_p50: float
    share_of_added_p95: float


class Crowd(Struct, frozen=True, kw_only=True):
    """Many sessions at once."""

    sessions: int
    turns: int
    most_at_once: int
    """Turns that were in flight together."""
    failed: int
    forked: int
    """Sessions whose conversation is not one line: none should be."""
    seconds: float
    least_seconds: float
    """If nothing but the engine took time."""


class Burst(Struct, frozen=True, kw_only=True):
    """Requests of OpenAI's client that were sent at once."""

    requests: int
    failed: int
    seconds: float


class GatewayFigures(Struct, frozen=True, kw_only=True):
    cells: list[Cell]
    ratios: list[Ratio]
    crowd: Crowd
    burst: Burst
    missing: str
    """Why LiteLLM was not measured; empty when it was."""


def gateway_verb(
    rounds: Annotated[int, typer.Option(help="Rounds of everything, in random order.", min=1)] = 3,
    seconds: Annotated[
        float, typer.Option(help="Seconds for each measurement of a round.", min=0.1)
    ] = 4.0,
    sessions: Annotated[int, typer.Option(help="Concurrent agents.", min=1)] = 1200,
    peer: Annotated[str, typer.Option(help="Path of LiteLLM's program.")] = "litellm",
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """The time that the gateway adds to a request, compared with LiteLLM's proxy."""
    output, origin = Printer(json), Origin()
    with output.progress() as progress:
        progress.add_task("gateway")
        figures = asyncio.run(_figures(rounds, seconds, sessions=sessions, peer=peer))
    _print(output, figures)
    output.json(origin.result("What does the gateway add to a request?", figures))


async def _figures(rounds: int, seconds: float, *, sessions: int, peer: str) -> GatewayFigures:
    cells, missing = await _cells(rounds, seconds, peer)
    return GatewayFigures(
        cells=cells,
        ratios=_ratios(cells),
        crowd=await _crowd(sessions),
        burst=await _burst(),
        missing=missing,
    )


class Record:
    """What the callers of a cell saw."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self.per_s: list[float] = []
        self.failed = 0

    def cell(self, name: str, concurrency: int) -> Cell:
        shares = quantiles(self.ms, n=20) if len(self.ms) > 1 else [*self.ms, 0.0]
        return Cell(
            name=name,
            concurrency=concurrency,
            per_s=self.per_s,
            p50_ms=median(self.ms) if self.ms else float("inf"),
            p95_ms=shares[-1],
            failed=self.failed,
        )


async def _cells(rounds: int, seconds: float, peer: str) -> tuple[list[Cell], str]:
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(engine())
        contenders = [behind, await stack.enter_async_context(gateway(behind))]
        missing = ""
        try:
            contenders.append(await stack.enter_async_context(litellm(behind, peer)))
        except (NotHere, OSError) as error:
            missing = f"{error}; pip install 'litellm[proxy]' anywhere and name it with --peer"
        plan = [(one, callers) for one in contenders for callers in CONCURRENCIES]
        records = {(one.name, callers): Record() for one, callers in plan}
        for one in contenders:
            await _hammered(one, CONCURRENCIES[1], seconds=1.0, record=Record())
        rng = random.Random(0)
        for _ in range(rounds):
            for one, callers in rng.sample(plan, len(plan)):
                record = records[one.name, callers]
                await _hammered(one, callers, seconds=seconds, record=record)
    return [record.cell(*key) for key, record in records.items()], missing


async def _hammered(contender: Contender, callers: int, *, seconds: float, record: Record) -> None:
    """Concurrent callers, each with one chat after the other, for some seconds."""
    body = _chat([{"role": "user", "content": WORDS}])
    ends_at = perf_counter() + seconds
    answered = 0

    async def caller(http: aiohttp.ClientSession) -> None:
        nonlocal answered
        while (began_at := perf_counter()) < ends_at:
            async with http.post("/v1/chat/completions", data=body) as response:
                is_fine = WORDS.encode() in await response.read()
            record.ms.append(1000 * (perf_counter() - began_at))
            record.failed += not is_fine
            answered += is_fine

    async with _client(contender) as http:
        began_at = perf_counter()
        await asyncio.gather(*(caller(http) for _ in range(callers)))
        record.per_s.append(answered / (perf_counter() - began_at))


@asynccontextmanager
async def _client(contender: Contender) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {
        "authorization": f"Bearer {contender.token}",
        "content-type": "application/json",
    }
    async with aiohttp.ClientSession(
        contender.url, headers=headers, connector=aiohttp.TCPConnector(limit=0)
    ) as http:
        yield http


def _chat(messages: list[dict[str, str]]) -> bytes:
    return msgspec.json.encode({"model": MODEL, "messages": messages, "max_tokens": 32})


def _ratios(cells: list[Cell]) -> list[Ratio]:
    by_key = {(cell.name, cell.concurrency): cell for cell in cells}
    ratios = []
    for callers in CONCURRENCIES:
        ours, direct = by_key["gateway", callers], by_key["engine", callers]
        theirs = by_key.get(("LiteLLM", callers))
        if theirs is None:
            continue
        added = [ours.p50_ms - direct.p50_ms, ours.p95_ms - direct.p95_ms]
        their_added = [theirs.p50_ms - direct.p50_ms, theirs.p95_ms - direct.p95_ms]
        ratios.append(
            Ratio(
                concurrency=callers,
                throughput=median(ours.per_s) / max(median(theirs.per_s), 1e-9),
                added_p50_ms=added[0],
                added_p95_ms=added[1],
                litellm_added_p50_ms=their_added[0],
                litellm_added_p95_ms=their_added[1],
                share_of_added_p50=added[0] / their_added[0],
                share_of_added_p95=added[1] / their_added[1],
            )
        )
    return ratios


async def _crowd(sessions: int) -> Crowd:
    """Agents with a session each; an agent sends its whole conversation with every turn."""
    under_way = most = failed = forked = 0

    async def agent(http: aiohttp.ClientSession, number: int) -> None:
        nonlocal under_way, most, failed, forked
        messages: list[dict[str, str]] = []
        for _ in range(TURNS):
            messages.append({"role": "user", "content": WORDS})
            under_way += 1
            most = max(most, under_way)
            path = f"/sessions/agent-{number}/v1/chat/completions"
            async with http.post(path, data=_chat(messages)) as response:
                answer = await response.json()
            under_way -= 1
            if response.status != 200:
                failed += 1
                return
            messages.append(answer["choices"][0]["message"])
        async with http.delete(f"/sessions/agent-{number}") as response:
            lines = (await response.json())["lines"]
        forked += len(lines) != 1 or len(lines[0]) != 2 * TURNS

    async with (
        engine(token_s=SLOW_TOKEN_S) as behind,
        gateway(behind) as ours,
        _client(ours) as http,
    ):
        began_at = perf_counter()
        await asyncio.gather(*(agent(http, number) for number in range(sessions)))
        took = perf_counter() - began_at
    return Crowd(
        sessions=sessions,
        turns=TURNS,
        most_at_once=most,
        failed=failed,
        forked=forked,
        seconds=took,
        least_seconds=TURNS * SLOW_TOKEN_S * len(REPLY),
    )


async def _burst() -> Burst:
    async def ask(client: AsyncOpenAI) -> bool:
        try:
            said: list[ChatCompletionMessageParam] = [{"role": "user", "content": WORDS}]
            answer = await client.chat.completions.create(model=MODEL, messages=said)
        except OpenAIError:
            return False
        return answer.choices[0].message.content == WORDS

    async with engine() as behind, gateway(behind) as ours:
        url = f"{ours.url}/v1"
        async with AsyncOpenAI(base_url=url, api_key=ours.token, max_retries=0) as client:
            began_at = perf_counter()
            found = await asyncio.gather(*(ask(client) for _ in range(BURST)))
            took = perf_counter() - began_at
    return Burst(requests=BURST, failed=found.count(False), seconds=took)


def _print(output: Printer, figures: GatewayFigures) -> None:
    output.table(
        "Chats through one process",
        ["", "callers", "per s", "p50 ms", "p95 ms", "failed"],
        [
            [
                cell.name,
                str(cell.concurrency),
                f"{median(cell.per_s):.0f}",
                f"{cell.p50_ms:.2f}",
                f"{cell.p95_ms:.2f}",
                str(cell.failed),
            ]
            for cell in figures.cells
        ],
    )
    output.table(
        f"The gateway beside LiteLLM (goals: {TIMES_LITELLM_AT_LEAST:g}x the throughput at 64, "
        f"{SHARE_OF_ADDED_AT_MOST:.0%} of the added latency)",
        ["callers", "throughput", "added p50 ms", "added p95 ms", "share p50", "share p95"],
        [
            [
                str(one.concurrency),
                f"{one.throughput:.1f}x",
                f"{one.added_p50_ms:.2f} / {one.litellm_added_p50_ms:.2f}",
                f"{one.added_p95_ms:.2f} / {one.litellm_added_p95_ms:.2f}",
                f"{one.share_of_added_p50:.0%}",
                f"{one.share_of_added_p95:.0%}",
            ]
            for one in figures.ratios
        ],
    )
    crowd = figures.crowd
    output.console.print(
        f"{crowd.sessions} sessions of {crowd.turns} turns, {crowd.most_at_once} turns at once "
        f"(goal {SESSIONS_AT_LEAST}): {crowd.failed} failed, {crowd.forked} forked, "
        f"{crowd.seconds:.1f} s; the engine alone takes {crowd.least_seconds:.1f} s.",
        soft_wrap=True,
    )
    burst = figures.burst
    output.console.print(
        f"{burst.requests} requests of OpenAI's client at once: {burst.failed} failed, "
        f"{burst.seconds:.1f} s.",
        soft_wrap=True,
    )
    if figures.missing:
        output.console.print(f"LiteLLM was not measured: {figures.missing}", soft_wrap=True)
