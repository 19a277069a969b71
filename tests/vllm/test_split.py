"""The gateway before real servers that read for each other, and what happens when one dies.

The tests kill the servers one after the other, so their order matters. Needs `pip install nixl`
beside vLLM; without it these tests are skipped.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import pytest
import pytest_asyncio
from gateway_support import TOKEN, WORDS
from openai import AsyncOpenAI

from artangram.core.rollout.trajectory import Segment
from artangram.gateway import Gateway, Reply, Sampling, StallLimits, splits_of
from artangram.gateway.engines.vllmprocess import VllmProcess
from artangram.gateway.http import application, serving

from .conftest import CONTEXT, settings, skip_without_nixl, started
from .test_pools import AGREES_WITHIN, begun, worst_difference

# A server may take minutes to start on a busy machine.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1200)]

CLASSES = {"reader": "compute", "first": "bandwidth", "second": "bandwidth"}
HALVES = splits_of({"default": {"prefill": "compute", "decode": "bandwidth"}})
AGENTS = 4
PROMPT = tuple(5 + n * n % 17 for n in range(300))
"""Of more than one block."""
LONG = Sampling(max_tokens=1000)

Servers = dict[str, VllmProcess]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that knows as many tokens as there are words."""
    from models_support import a_model

    from artangram.models.directory import save_model

    directory = tmp_path_factory.mktemp("model")
    save_model(a_model(max_context=CONTEXT, vocab_size=WORDS.vocab_size), directory)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Servers]:
    skip_without_nixl()
    logs = tmp_path_factory.mktemp("logs")
    plans = {
        name: settings(model, core=n, log=logs / f"{name}.log", kv_connector="NixlConnector")
        for n, name in enumerate(CLASSES)
    }
    async with started(plans) as engines:
        yield dict(zip(CLASSES, engines, strict=True))


def a_gateway(servers: Servers, *names: str) -> Gateway:
    gateway = Gateway(split=HALVES, stalls=StallLimits(least_s=600.0))
    for name in names:
        gateway.add(servers[name], hardware=CLASSES[name])
    return gateway


Talk = list[Segment]


async def talked(gateway: Gateway, agent: str, url: str) -> Talk:
    """Two turns of an agent that knows nothing of us, the second one streamed."""
    how = {"model": "tiny", "temperature": 0, "max_tokens": 40}
    said = [{"role": "user", "content": f"hello the cat said {agent}"}]
    async with AsyncOpenAI(base_url=f"{url}/sessions/{agent}/v1", api_key=TOKEN) as client:
        answer = await client.chat.completions.create(messages=said, **how)
        said += [answer.choices[0].message.to_dict(), {"role": "user", "content": "and the dog"}]
        stream = await client.chat.completions.create(messages=said, stream=True, **how)
        async for _ in stream:
            pass
    return list(gateway.sessions[agent].segments())


async def talks(gateway: Gateway) -> list[Talk]:
    """All that the agents heard and said, who talk at the same time."""
    app = application(gateway, tokenizer=WORDS, model="tiny", token=TOKEN)
    async with serving(app) as url:
        found = await asyncio.gather(*(talked(gateway, str(n), url) for n in range(AGENTS)))
        await gateway.aclose()
    return found


async def test_a_client_that_knows_nothing_of_it_is_answered_by_two_servers(servers: Servers):
    alone = await talks(a_gateway(servers, "first"))
    reader, writer = servers["reader"], servers["first"]
    sampled, taken = reader.stats().sampled_tokens, writer.stats().taken_tokens
    gateway = a_gateway(servers, "reader", "first")
    halved = await talks(gateway)
    for ours, theirs in zip(halved, alone, strict=True):
        assert [one.is_sampled for one in ours] == [False, True, False, True]
        assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=AGREES_WITHIN)
    counters = gateway.counters
    assert (counters.splits, counters.unsplit) == (2 * AGENTS, 0)
    assert reader.stats().sampled_tokens == sampled
    assert writer.stats().taken_tokens - taken == counters.prompt_tokens - counters.turns


Turns = list[asyncio.Task[Reply]]


def asked(gateway: Gateway, name: str, *, count: int) -> Turns:
    sessions = [gateway.open(f"{name} {n}") for n in range(count)]
    return [asyncio.create_task(one.generate(PROMPT, LONG)) for one in sessions]


async def read_and_waiting(gateway: Gateway, engine: VllmProcess) -> Turns:
    """Turns between their halves: they were read, and everybody who could write is held."""
    count = 2
    read = engine.stats().prompt_tokens + count * len(PROMPT)
    await engine.pause()
    running = asked(gateway, "between", count=count)
    await asyncio.sleep(0.1)  # Their reader is chosen now.
    for replica in gateway.replicas:
        gateway.hold(replica.name)
    await engine.resume()
    async with asyncio.timeout(300):  # The first prompt of a server takes a while.
        while engine.stats().prompt_tokens < read:  # noqa: ASYNC110 - a server tells nobody
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    return running


def assert_whole(replies: Sequence[Reply], model: Path) -> None:
    """Nothing is missing, and every token is one that the model says with this probability."""
    for reply in replies:
        assert len(reply.token_ids) == LONG.max_tokens == reply.spans[-1].end
        assert all(a.end == b.start for a, b in pairwise(reply.spans))
    assert worst_difference(replies, {0: model}, prompt=PROMPT) < AGREES_WITHIN


async def test_a_writer_that_is_killed_loses_no_turn(servers: Servers, model: Path):
    """In the middle of answers, and of turns that were just read for it."""
    gateway = a_gateway(servers, "reader", "first", "second")
    gateway.hold("second")
    running = asked(gateway, "running", count=4)
    await begun(gateway, [servers["first"]], tokens=20)
    between = await read_and_waiting(gateway, servers["reader"])
    os.killpg(servers["first"].pid, signal.SIGKILL)
    # It is chosen before anybody knows.
    gateway.release("first")
    await asyncio.sleep(0.5)
    gateway.release("reader")
    gateway.release("second")
    replies = await asyncio.gather(*running, *between)
    # What cannot be handed over in time is answered by whoever is free.
    assert {reply.replica for reply in replies} <= {"second", "reader"}
    assert_whole(replies, model)
    assert gateway.counters.lost == 1
    assert gateway.counters.moves == len(replies)


async def finished_without(
    reader: VllmProcess, gateway: Gateway, model: Path, *, figures: dict[str, object]
) -> None:
    """Turns that it has read for the second server, when it is killed before they are fetched."""
    between = await read_and_waiting(gateway, reader)
    os.killpg(reader.pid, signal.SIGKILL)
    began_at = perf_counter()
    gateway.release("second")
    replies = await asyncio.gather(*between)
    figures[f"answered_without_{reader.name}_s"] = round(perf_counter() - began_at, 1)
    assert {reply.replica for reply in replies} == {"second"}
    assert_whole(replies, model)
    # The writer is as good as before.
    assert_whole(await asyncio.gather(*asked(gateway, "after", count=1)), model)


async def test_a_reader_that_is_killed_when_it_has_read_loses_no_turn(
    servers: Servers, model: Path, figures: dict[str, object]
):
    gateway = a_gateway(servers, "reader", "second")
    await finished_without(servers["reader"], gateway, model, figures=figures)


async def test_a_reader_whom_the_writer_has_never_met_may_be_killed_as_well(
    servers: Servers, model: Path, figures: dict[str, object], tmp_path: Path
):
    # Not where the second server is: a thread of its connector never rests.
    core = list(CLASSES).index("first")
    plan = settings(model, core=core, log=tmp_path / "log", kv_connector="NixlConnector")
    async with started({"stranger": plan}) as (stranger,):
        gateway = a_gateway(servers, "second")
        gateway.add(stranger, hardware="compute")
        await finished_without(stranger, gateway, model, figures=figures)
