"""Two real servers as two pools: tasks, weights that change in flight, a server that is killed."""

import asyncio
import os
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import pytest

from artangram.gateway import Gateway, Reply, Sampling, affinity_of
from artangram.gateway.engines.vllmprocess import VllmProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROMPT = (5, 6, 7)
MANY = Sampling(max_tokens=300)
SESSIONS = 8
AGREES_WITHIN = 1e-4


def a_gateway(servers: list[VllmProcess]) -> Gateway:
    gateway = Gateway(affinity=affinity_of({"lake": "compute", "math": "bandwidth"}))
    for engine, hardware in zip(servers, ("compute", "bandwidth"), strict=True):
        gateway.add(engine, hardware=hardware)
    return gateway


def turns(gateway: Gateway, count: int = SESSIONS) -> "list[asyncio.Task[Reply]]":
    """Sessions of both tasks, each in a long turn."""
    sessions = [gateway.open(f"s{n}", task=("lake", "math")[n % 2]) for n in range(count)]
    return [asyncio.create_task(one.generate(PROMPT, MANY)) for one in sessions]


async def begun(gateway: Gateway, servers: list[VllmProcess], *, tokens: int) -> None:
    """Return when every turn runs and each server has sampled some."""
    target = [engine.stats().sampled_tokens + tokens for engine in servers]
    async with asyncio.timeout(60):
        while any(  # noqa: ASYNC110 - a server tells nobody
            e.stats().sampled_tokens < t for e, t in zip(servers, target, strict=True)
        ):
            await asyncio.sleep(0.005)


def worst_difference(replies: Sequence[Reply], weights: dict[int, Path]) -> float:
    """Between the logprobs of vLLM and those of our model with the weights of each span."""
    import torch

    from artangram.models.causal import score
    from artangram.models.directory import load_model
    from artangram.models.packed import pack

    worst = 0.0
    for version, directory in weights.items():
        packed = pack([(*PROMPT, *reply.token_ids) for reply in replies])
        with torch.no_grad():
            scores = score(load_model(directory), packed, at=packed.later_tokens())
        ours = scores.logprobs.split([n - 1 for n in packed.lengths])
        for reply, row in zip(replies, ours, strict=True):
            for span in reply.spans:
                if span.version == version:
                    theirs = torch.tensor(reply.logprobs[span.start : span.end])
                    mine = row[len(PROMPT) - 1 :][span.start : span.end]
                    worst = max(worst, float((theirs - mine).abs().max()))
    return worst


async def test_each_task_goes_to_its_class(servers: list[VllmProcess]):
    gateway = a_gateway(servers)
    replies = await asyncio.gather(*turns(gateway, 4))
    assert [reply.replica for reply in replies] == ["vllm-0", "vllm-1"] * 2
    assert gateway.counters.fallbacks == {}


async def test_weights_change_in_flight_and_every_token_knows_its_own(
    servers: list[VllmProcess], models: list[Path], figures: dict[str, object]
):
    # The suite that ran before may have left any version.
    for engine in servers:
        await engine.pause()
        await engine.load(100, models[0])
        await engine.resume()
    gateway = a_gateway(servers)
    running = turns(gateway)
    cycles = []
    for version in (101, 102):
        await begun(gateway, servers, tokens=SESSIONS * 10)
        for engine in servers:
            began_at = perf_counter()
            await engine.pause()
            await engine.load(version, models[version - 100])
            await engine.resume()
            cycles.append(perf_counter() - began_at)
    replies = await asyncio.gather(*running)
    for reply in replies:
        assert len(reply.token_ids) == MANY.max_tokens == reply.spans[-1].end
        assert all(a.end == b.start for a, b in pairwise(reply.spans))
        assert [span.version for span in reply.spans] == [100, 101, 102]
    weights = {100 + number: directory for number, directory in enumerate(models)}
    difference = worst_difference(replies, weights)
    assert difference < AGREES_WITHIN
    # The comparison can tell: the weights of another version do not fit.
    assert worst_difference(replies, {100: models[1]}) > 0.1
    figures["requests_in_flight"] = len(replies)
    figures["pause_load_resume_s"] = [round(seconds, 3) for seconds in cycles]
    figures["worst_logprob_difference"] = difference


async def test_a_killed_server_loses_no_trajectory(
    servers: list[VllmProcess], models: list[Path], figures: dict[str, object]
):
    """The last one: afterwards there is one server."""
    gateway = a_gateway(servers)
    running = turns(gateway)
    await begun(gateway, servers, tokens=SESSIONS * 10)
    os.killpg(servers[0].pid, signal.SIGKILL)
    replies = await asyncio.gather(*running)
    assert all(len(reply.token_ids) == MANY.max_tokens for reply in replies)
    assert {reply.replica for reply in replies} == {"vllm-1"}
    counters = gateway.counters
    assert (counters.lost, counters.moves) == (1, SESSIONS // 2)
    assert sum(counters.fallbacks.values()) == SESSIONS // 2
    assert worst_difference(replies, {102: models[2]}) < AGREES_WITHIN
    figures["moved_after_kill"] = counters.moves
