"""An agent that knows nothing but OpenAI's client is a trajectory of a rollout, token for token."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from gateway_support import TOKEN, WORDS
from openai import AsyncOpenAI, AuthenticationError, DefaultAsyncHttpxClient

from artangram.core.rollout.trajectory import Batch, TrajectoryStatus
from artangram.core.rollout.weights import Staleness
from artangram.envs.agents import AgentTask, AttemptFailed
from artangram.envs.protocol import ModelAccess
from artangram.gateway import Gateway
from artangram.gateway.engines.scripted import ScriptedEngine
from artangram.gateway.rules import SamplingRules
from artangram.models.tokenizer import USER, Message
from artangram.pipeline.agentserver import agent_gateway
from artangram.rollout import PhaseLimits, Plan, Retries, Rollout, Source, Spares
from artangram.rollout.defects import EnvironmentDefect

ODD = tuple(WORDS.encode(letter)[0] for letter in "cat")
"""Not what encoding the text again would give."""
REPLY = (*ODD, WORDS.eos_id)


def chat(llm: ModelAccess) -> AsyncOpenAI:
    plain = DefaultAsyncHttpxClient(verify=False)  # Reading certificates takes long.
    return AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0, http_client=plain)


async def talk(problem: dict[str, Any], llm: ModelAccess, client: Any) -> float:
    said: list[Any] = [{"role": "user", "content": "hello"}]
    async with chat(llm) as one:
        for word in ("dog", "mat"):
            answer = await one.chat.completions.create(model=llm.model, messages=said)
            said += [answer.choices[0].message.to_dict(), {"role": "user", "content": word}]
        await one.chat.completions.create(model=llm.model, messages=said)
    return 1.0


def task(solve: Any, **fields: Any) -> AgentTask:
    return AgentTask("agent", problems=lambda seed: [{"n": 1}] * 100, solve=solve, **fields)


@asynccontextmanager
async def rolling(one: AgentTask, *, engine: Any = None, **plan: Any) -> AsyncIterator[Rollout]:
    """A rollout of two siblings, with an engine that always says the same."""
    gateway = Gateway()
    gateway.add(engine or ScriptedEngine(lambda _: REPLY, version=3))
    given = {"environments": 2, "group_size": 2, "retries": Retries(attempts=0), **plan}
    async with (
        agent_gateway([one], gateway, tokenizer=WORDS, model="tiny") as agents,
        Rollout(
            Source([one]),
            gateway,
            plan=Plan(**given),
            tokenizer=WORDS,
            version=3,
            agents=agents,
        ) as rollout,
    ):
        yield rollout
    assert dict(gateway.sessions) == {}


async def batch_of(one: AgentTask, **plan: Any) -> Batch:
    async with rolling(one, **plan) as rollout:
        return await rollout.sink.batch(1)


async def failure_of(one: AgentTask, **plan: Any) -> str:
    """Why infrastructure failed: no batch may come of it."""
    async with rolling(one, **plan) as rollout:
        asking = asyncio.ensure_future(rollout.sink.batch(1))
        while not rollout.tally.last_failure:
            assert not asking.done()
            await asyncio.sleep(0.01)
        asking.cancel()
        return rollout.tally.last_failure


async def test_an_agent_is_a_trajectory_with_the_very_tokens_it_was_given():
    batch = await batch_of(task(talk))
    heard = [WORDS.render([Message(USER, word)]) for word in ("hello", "dog", "mat")]
    expected = [tokens for given in heard for tokens in (given + WORDS.opening(), REPLY)]
    assert len(batch.trajectories) == 2
    for trajectory in batch.trajectories:
        assert [one.token_ids for one in trajectory.segments] == expected
        assert (trajectory.status, trajectory.oldest_version) == (TrajectoryStatus.OK, 3)
        assert (trajectory.turns, trajectory.reward) == (3, 1.0)
        assert all(len(s.logprobs) == len(REPLY) for s in trajectory.segments if s.is_sampled)


async def test_an_agent_that_knows_no_asyncio_may_return_anything_that_is_scored():
    def solve(problem: dict[str, Any], llm: ModelAccess, client: Any) -> str:
        return "an answer"

    batch = await batch_of(task(solve, score=lambda row, answer: row["n"] + len(answer)))
    assert {t.reward for t in batch.trajectories} == {10.0}


async def test_an_attempt_that_the_agent_gives_up_is_scored_without_an_answer():
    async def solve(problem: dict[str, Any], llm: ModelAccess, client: Any) -> float:
        raise AttemptFailed("the model wrote no JSON")

    batch = await batch_of(task(solve, score=lambda row, answer: -1.0 if answer is None else 1.0))
    found = {(t.status, t.reward) for t in batch.trajectories}
    assert found == {(TrajectoryStatus.TASK_FAILED, -1.0)}


async def test_an_agent_that_uses_up_its_turns_is_cut_short():
    async def endless(problem: dict[str, Any], llm: ModelAccess, client: Any) -> None:
        async with chat(llm) as one:
            while True:
                said: list[Any] = [{"role": "user", "content": "hello"}]
                await one.chat.completions.create(model="any name", messages=said)

    batch = await batch_of(task(endless, score=lambda row, answer: 0.5, max_turns=2))
    found = {(t.status, t.reward, t.turns) for t in batch.trajectories}
    assert found == {(TrajectoryStatus.TRUNCATED, 0.5, 2)}


async def test_an_agent_that_does_not_end_is_ended_at_its_limit():
    async def sleeping(problem: dict[str, Any], llm: ModelAccess, client: Any) -> None:
        await asyncio.sleep(3600)

    why = await failure_of(task(sleeping), phases=PhaseLimits(agent_s=0.05))
    assert "agent worked for its limit of 0.05 s" in why


async def test_a_bug_of_an_agent_is_never_a_reward():
    assert await failure_of(task(clumsy)) == "KeyError: 'a bug'"


def clumsy(problem: dict[str, Any], llm: ModelAccess, client: Any) -> float:
    raise KeyError("a bug")


async def test_a_bug_that_every_attempt_meets_ends_the_run_with_its_traceback():
    with pytest.raises(EnvironmentDefect) as found:
        await batch_of(task(clumsy))
    assert str(found.value).startswith("tasks.agent: KeyError: 'a bug', in ")
    assert 'raise KeyError("a bug")' in found.value.traceback


async def test_a_bug_that_some_attempts_meet_ends_nothing():
    calls = count()

    async def sometimes(problem: dict[str, Any], llm: ModelAccess, client: Any) -> float:
        return clumsy(problem, llm, client) if next(calls) % 3 else 1.0

    async with rolling(task(sometimes), spares=Spares(most_reissues=100)) as rollout:
        for _ in range(10):
            rollout.settle(await rollout.sink.batch(1))
    assert rollout.tally.count(TrajectoryStatus.INFRA_FAILED) > 16


async def test_what_is_no_number_is_never_a_reward():
    assert "is 'much', which is not a number" in await failure_of(task(lambda *_: "much"))


async def test_a_key_opens_one_trajectory_while_it_runs_and_nothing_else():
    keys: list[ModelAccess] = []

    async def solve(problem: dict[str, Any], llm: ModelAccess, client: Any) -> float:
        keys.append(llm)
        return 1.0

    gateway = Gateway()
    one = task(solve)
    async with agent_gateway([one], gateway, tokenizer=WORDS, model="tiny") as agents:
        plan = Plan(environments=1, group_size=1)
        async with Rollout(Source([one]), gateway, plan=plan, agents=agents) as rollout:
            await rollout.sink.batch(1)
        for key in (keys[0].api_key, TOKEN):
            with pytest.raises(AuthenticationError):
                async with chat(ModelAccess(**{**_fields(keys[0]), "api_key": key})) as late:
                    await late.models.list()
        session = gateway.open("mine", tokenizer=WORDS)

        async def before() -> None:
            pass

        with agents.admitted(session, before_turn=before, rules=SamplingRules()) as admitted:
            async with chat(admitted.llm) as inside:
                assert [model.id async for model in inside.models.list()] == ["tiny"]
                with pytest.raises(AuthenticationError):
                    await inside.get("/../sessions/mine", cast_to=object)
        await session.close()


def _fields(llm: ModelAccess) -> dict[str, str]:
    return {name: getattr(llm, name) for name in llm.__struct_fields__}


async def greedy(problem: dict[str, Any], llm: ModelAccess, client: Any) -> float:
    said: list[Any] = [{"role": "user", "content": "hello"}]
    async with chat(llm) as one:
        await one.chat.completions.create(model="m", messages=said, temperature=0, top_p=0.5)
    return 1.0


async def test_what_training_could_not_score_is_refused_unless_the_run_replaces_it():
    assert "temperature: 0 cannot be trained on" in await failure_of(task(greedy))
    batch = await batch_of(task(greedy, samples_as_run=True), temperature=0.7)
    heat = {one.temperature for t in batch.trajectories for one in t.segments if one.is_sampled}
    assert heat == {0.7}


async def test_an_answer_without_a_limit_may_use_the_context_or_what_the_task_allows():
    async def solve(problem: dict[str, Any], llm: ModelAccess, client: Any) -> float:
        said: list[Any] = [{"role": "user", "content": "hello"}]
        async with chat(llm) as one:
            found = await one.chat.completions.create(model="m", messages=said)
        return float(found.usage.completion_tokens)

    def rambling() -> Any:
        return ScriptedEngine(lambda _: ODD * 1000, version=3, max_context=2000)

    given = len(WORDS.render([Message(USER, "hello")]) + WORDS.opening())
    for limit, wanted in ((0, 2000 - given), (7, 7)):
        one = task(solve, max_tokens=limit)
        async with rolling(one, engine=rambling()) as rollout:
            batch = await rollout.sink.batch(1)
        found = {(t.reward, t.status) for t in batch.trajectories}
        assert found == {(wanted, TrajectoryStatus.TRUNCATED)}


async def test_a_stale_agent_is_cancelled_and_its_next_turn_waits_for_fresh_weights():
    ended: list[str] = []
    first = asyncio.Event()

    async def solve(problem: dict[str, Any], llm: ModelAccess, client: Any) -> float:
        try:
            async with chat(llm) as one:
                said: list[Any] = [{"role": "user", "content": "hello"}]
                await one.chat.completions.create(model=llm.model, messages=said)
                first.set()
                await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return 1.0

    async with rolling(task(solve), staleness=Staleness(max_staleness=0)) as rollout:
        asking = asyncio.ensure_future(rollout.sink.batch(1))
        await first.wait()
        rollout.announce(4)
        while rollout.tally.count(TrajectoryStatus.STALE) < 1:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
        # Others have begun, and none of them may sample with the old weights.
        turns = rollout.runner.endpoint.counters.turns  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)
        assert rollout.runner.endpoint.counters.turns == turns  # type: ignore[attr-defined]
        asking.cancel()
    assert "cancelled" in ended
