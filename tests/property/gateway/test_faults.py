"""Turns under random faults: whatever dies, is cleared or reloaded, the tokens come out the same.

The next token of the scripted engines depends on the one before it only, so an answer that was
pieced together from several replicas must read as if one had made it.
"""

import asyncio
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import looptime
from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.gateway import (
    EngineGone,
    FinishReason,
    Gateway,
    Reply,
    Sampling,
    Session,
    Splits,
    splits_of,
)
from artangram.gateway.engines.protocol import EngineRequest
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace

VOCABULARY = 50
WEIGHTS = Path(__file__).parent
PACE = ScriptedPace(token_s=1.0, prompt_token_s=0.1, move_token_s=0.05)


def after(token: int, count: int) -> list[int]:
    return [(token + n) % VOCABULARY for n in range(1, count + 1)]


def script(request: EngineRequest) -> list[int]:
    return after(request.prompt[-1], 1000)


FAULTS = ("crash", "hang", "evict", "remove", "reload", "abort", "join", "crash all")
faults = st.lists(
    st.tuples(st.floats(0, 30), st.sampled_from(FAULTS), st.integers(0, 7)), max_size=12
)
turns = st.lists(
    st.tuples(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=4), st.integers(1, 15)),
    min_size=1,
    max_size=3,
)
conversations = st.lists(turns, min_size=1, max_size=5)
splits = st.sampled_from(
    [
        splits_of({}),
        splits_of("auto"),
        splits_of({"default": {"prefill": "compute", "decode": "bandwidth"}}),
        splits_of({"default": {"prefill": "bandwidth", "decode": "bandwidth"}}),
    ]
)


class World:
    """A gateway, what happens to it, and what its sessions got."""

    def __init__(self, split: Splits) -> None:
        self.gateway = Gateway(split=split)
        self.made = 0
        self.version = 0
        self.join()

    def join(self) -> None:
        self.made += 1
        engine = ScriptedEngine(script, name=f"e{self.made}", pace=PACE, version=self.version)
        self.gateway.add(engine, hardware=("compute", "bandwidth")[self.made % 2])

    async def happen(self, kind: str, number: int) -> None:
        if kind == "join":
            self.join()
        if kind == "abort":
            await self.gateway.abort(f"s{number}")
        replicas = self.gateway.replicas
        for replica in replicas if kind == "crash all" else replicas[number % 3 : number % 3 + 1]:
            match kind:
                case "crash" | "crash all":
                    replica.engine.crash()
                case "hang":
                    replica.engine.hang()
                case "remove":
                    await self.gateway.remove(replica.name)
                case "evict":
                    self.gateway.hold(replica.name)
                    await self.gateway.evict(replica.name)
                    await asyncio.sleep(1)
                    if replica.name in {one.name for one in self.gateway.replicas}:
                        self.gateway.release(replica.name)
                case "reload":
                    self.version += 1
                    # It may have crashed or hang, and nobody has noticed.
                    with suppress(EngineGone, TimeoutError):
                        async with asyncio.timeout(1):
                            await replica.engine.pause()
                            await replica.engine.load(self.version, WEIGHTS)
                            await replica.engine.resume()

    async def fate(self, planned: list[tuple[float, str, int]]) -> None:
        loop = asyncio.get_running_loop()
        for at, kind, number in sorted(planned):
            await asyncio.sleep(max(0.0, at - loop.time()))
            await self.happen(kind, number)
        self.join()  # At the end help comes: nobody waits for ever.


async def converse(session: Session, planned: list[tuple[list[int], int]]) -> list[Reply]:
    return [await session.generate(new, Sampling(max_tokens=count)) for new, count in planned]


def check_history(session: Session, planned: list[tuple[list[int], int]], replies: list[Reply]):
    expected = []
    for (new, count), reply in zip(planned, replies, strict=True):
        whole = after(new[-1], count)
        is_whole = reply.finish is not FinishReason.ABORT
        assert list(reply.token_ids) == (whole if is_whole else whole[: len(reply.token_ids)])
        assert len(reply.logprobs) == len(reply.token_ids)
        expected += [*new, *reply.token_ids]
        if reply.spans:
            assert (reply.spans[0].start, reply.spans[-1].end) == (0, len(reply.token_ids))
            assert all(
                a.end == b.start and a.version != b.version for a, b in pairwise(reply.spans)
            )
    assert list(session.line.token_ids()) == expected
    assert [t for segment in session.segments() for t in segment.token_ids] == expected


async def play(
    talks: list[list[tuple[list[int], int]]],
    planned: list[tuple[float, str, int]],
    split: Splits,
):
    world = World(split)
    gateway = world.gateway
    sessions = [gateway.open(f"s{n}") for n in range(len(talks))]
    async with asyncio.timeout(100_000), asyncio.TaskGroup() as group:
        group.create_task(world.fate(planned))
        running = [group.create_task(converse(*pair)) for pair in zip(sessions, talks, strict=True)]
    for session, talk, one in zip(sessions, talks, running, strict=True):
        check_history(session, talk, one.result())
        await session.close()
    counters = gateway.counters
    assert counters.turns == sum(map(len, talks)) == counters.replies + counters.aborted
    for replica in gateway.replicas:
        outstanding = replica.load
        assert (replica.turns, outstanding.prefill, outstanding.decode) == (0, 0, 0)
        assert replica.engine.stats().running + replica.engine.stats().waiting == 0


@given(conversations, faults, splits)
@settings(max_examples=80, deadline=None)
def test_answers_read_the_same_whatever_happens_to_the_replicas(talks, planned, split):
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(play(talks, planned, split))
    finally:
        loop.close()
