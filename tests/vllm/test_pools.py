"""Two real servers as two pools: tasks, weights that change in flight, one killed, one stopped."""

import asyncio
import os
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import pytest

from artangram.gateway import Gateway, Reply, Sampling, StallLimits, affinity_of
from artangram.gateway.engines.scripted import ScriptedEngine
from artangram.gateway.engines.vllmprocess import VllmProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROMPT = (5, 6, 7)
MANY = Sampling(max_tokens=2000)
"""Long enough for everything that happens to a turn to happen while it runs."""
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
    """Return when every turn has tokens and each server has sampled so many more."""
    target = [engine.stats().sampled_tokens + tokens for engine in servers]

    def is_so() -> bool:
        sampled = [engine.stats().sampled_tokens for engine in servers]
        has_begun = all(one.oldest_version is not None for one in gateway.sessions.values())
        return has_begun and all(a >= b for a, b in zip(sampled, target, strict=True))

    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - a server tells nobody
            await asyncio.sleep(0.005)


def worst_difference(
    replies: Sequence[Reply], weights: dict[int, Path], *, prompt: tuple[int, ...] = PROMPT
) -> float:
    """Between the logprobs of vLLM and those of our model with the weights of each span."""
    import torch

    from artangram.models.causal import score
    from artangram.models.directory import load_model
    from artangram.models.packed import pack

    worst = 0.0
    for version, directory in weights.items():
        model = load_model(directory)
        for reply in replies:
            packed = pack([(*prompt, *reply.token_ids)])
            with torch.no_grad():
                scores = score(model, packed, at=packed.later_tokens())
            ours, theirs = scores.logprobs[len(prompt) - 1 :], torch.tensor(reply.logprobs)
            for span in reply.spans:
                if span.version == version:
                    some = slice(span.start, span.end)
                    worst = max(worst, float((theirs[some] - ours[some]).abs().max()))
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
        await begun(gateway, servers, tokens=SESSIONS * 5)
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
        versions = [span.version for span in reply.spans]
        assert versions == sorted(set(versions))
        assert set(versions) <= {100, 101, 102}
    # A busy machine may tell us of some answers only when they are complete.
    crossed = sum(len(reply.spans) > 1 for reply in replies)
    assert crossed
    figures["answers_across_versions"] = crossed
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
    """The last but one: afterwards there is one server."""
    gateway = a_gateway(servers)
    running = turns(gateway)
    await begun(gateway, servers, tokens=SESSIONS * 5)
    os.killpg(servers[0].pid, signal.SIGKILL)
    replies = await asyncio.gather(*running)
    assert all(len(reply.token_ids) == MANY.max_tokens for reply in replies)
    assert {reply.replica for reply in replies} == {"vllm-1"}
    counters = gateway.counters
    assert (counters.lost, counters.moves) == (1, SESSIONS // 2)
    assert sum(counters.fallbacks.values()) == SESSIONS // 2
    assert worst_difference(replies, {102: models[2]}) < AGREES_WITHIN
    figures["moved_after_kill"] = counters.moves


def children_of(pid: int) -> list[int]:
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat")]
    # "pid (name) state parent ..."; a name may hold anything.
    parents = {int(stat.split()[0]): int(stat.rpartition(")")[2].split()[1]) for stat in stats}
    return [child for child, parent in parents.items() if parent == pid]


async def test_a_server_that_is_healthy_and_samples_nothing_is_given_up(
    servers: list[VllmProcess], figures: dict[str, object]
):
    """The last one: afterwards there is none."""
    gateway = Gateway(stalls=StallLimits(least_s=20.0))
    gateway.add(servers[1])
    (turn,) = turns(gateway, 1)
    await begun(gateway, servers[1:], tokens=5)
    # The processes that sample are stopped; the one that answers HTTP is not.
    for child in children_of(servers[1].pid):
        os.kill(child, signal.SIGSTOP)
    async with asyncio.timeout(120):
        while gateway.replicas:  # noqa: ASYNC110 - a watchdog tells its owner only
            await asyncio.sleep(0.1)
    gateway.add(ScriptedEngine(lambda request: [1] * MANY.max_tokens))
    reply = await turn
    assert len(reply.token_ids) == MANY.max_tokens
    assert len({span.version for span in reply.spans}) == 2  # The scripted one says 0.
    assert (gateway.counters.stalled, gateway.counters.lost) == (1, 1)
    figures["given_up_though_healthy"] = gateway.counters.stalled
