"""An agent that knows nothing but OpenAI's client is a trajectory of a rollout, token for token."""

from collections.abc import Iterator

from gateway_support import TOKEN, WORDS
from openai import AsyncOpenAI

from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.envs.protocol import Observation, Problem
from artangram.gateway import Gateway
from artangram.gateway.engines.scripted import ScriptedEngine
from artangram.gateway.http import ServerLimits, application, serving
from artangram.models.tokenizer import USER, Message
from artangram.rollout import Plan, Rollout, Source

ODD = tuple(WORDS.encode(letter)[0] for letter in "cat")
"""Not what encoding the text again would give."""
REPLY = (*ODD, WORDS.eos_id)


class AgentTask:
    """Its environment is the agent itself: `reset` returns when that is done."""

    name = "agent"
    max_turns = 1
    max_tokens = 8

    def __init__(self, url: str) -> None:
        self.url = url

    def problems(self, seed: int) -> Iterator[Problem]:
        yield Problem(id="p", task=self.name)

    def env(self, problem: Problem, *, trajectory: str) -> "AgentEnv":
        return AgentEnv(f"{self.url}/sessions/{trajectory}/v1")


class AgentEnv:
    def __init__(self, base_url: str) -> None:
        self._client = AsyncOpenAI(base_url=base_url, api_key=TOKEN, max_retries=0)

    async def reset(self) -> Observation:
        said = [{"role": "user", "content": "hello"}]
        for word in ("dog", "mat"):
            answer = await self._client.chat.completions.create(model="tiny", messages=said)
            said += [answer.choices[0].message.to_dict(), {"role": "user", "content": word}]
        await self._client.chat.completions.create(model="tiny", messages=said)
        return Observation(text="", done=True)

    async def respond(self, reply: str) -> Observation:
        raise AssertionError("the agent has spoken to the model itself")

    async def score(self) -> float:
        return 1.0

    async def aclose(self) -> None:
        await self._client.close()


async def test_an_agent_is_a_trajectory_with_the_very_tokens_it_was_given():
    gateway = Gateway()
    gateway.add(ScriptedEngine(lambda _: REPLY, version=3))
    limits = ServerLimits(opens_sessions=False)
    app = application(gateway, tokenizer=WORDS, model="tiny", token=TOKEN, limits=limits)
    async with serving(app) as url:
        source, plan = Source([AgentTask(url)]), Plan(environments=2, group_size=2)
        async with Rollout(source, gateway, plan=plan, tokenizer=WORDS, version=3) as rollout:
            batch = await rollout.sink.batch(1)
    heard = [WORDS.render([Message(USER, word)]) for word in ("hello", "dog", "mat")]
    expected = [tokens for given in heard for tokens in (given + WORDS.opening(), REPLY)]
    assert len(batch.trajectories) == 2
    for trajectory in batch.trajectories:
        assert [one.token_ids for one in trajectory.segments] == expected
        assert (trajectory.status, trajectory.oldest_version) == (TrajectoryStatus.OK, 3)
        assert all(len(s.logprobs) == len(REPLY) for s in trajectory.segments if s.is_sampled)
    assert dict(gateway.sessions) == {}
