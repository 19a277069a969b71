"""Agents of openai-agents, Pydantic AI and LangGraph, trained from a run's file as they are.

The model is taught first what to answer, by imitating what it would have been asked and should have
said: a model that never calls a tool tests little.
"""

import asyncio
import gc
from collections import Counter
from itertools import cycle

import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("agents")
pytest.importorskip("pydantic_ai")
pytest.importorskip("langgraph")
pytest.importorskip("langchain_openai")

from gateway_support import PuppetEngine, until

from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.envs.protocol import ModelAccess
from artangram.gateway import Gateway
from artangram.gateway.http import ServerLimits, application, serving
from artangram.gateway.http.agentkeys import AgentKeys
from artangram.models.config import ModelConfig
from artangram.models.directory import save_model
from artangram.models.llama import Llama
from artangram.models.vocabulary import Vocabulary
from artangram.train.warmup import Demonstration, WarmupSettings, imitate
from integration.pipeline import agentwork, frameworkagents
from integration.pipeline.frameworkagents import CALLED, FRAMEWORKS
from integration.pipeline.small import RIGHT
from integration.pipeline.test_agents import sampled_in, trained

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),  # Of the frameworks.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
STEPS, GROUP_SIZE = 2, 4
HERE = "integration.pipeline.frameworkagents"
VOCABULARY = Vocabulary.of(
    [
        *(f"{word} {verb}" for word, verb in RIGHT.items()),
        "say it so far Tools called as <call> name arguments look description Look parameters type",
        "object properties word string required title additionalProperties strict false true args",
        "input anyOf null schema Generated for single custom calls on",
        '{"}:,[]_.!?()/#$0123456789\n-',
    ]
)


async def demonstrated(agent, problem) -> list[Demonstration]:
    """What the model reads and should say, as an attempt that does all right records it."""
    gateway, engine, agent_keys = Gateway(), PuppetEngine("a", max_context=2000), AgentKeys()
    gateway.add(engine)
    app = application(
        gateway,
        tokenizer=VOCABULARY,
        model="m",
        token="t",
        limits=ServerLimits(opens_sessions=False),
        agent_keys=agent_keys,
    )
    session = gateway.open("s", task="t", tokenizer=VOCABULARY)
    word = problem["word"]

    async def fresh():
        pass

    async def answering():
        while True:
            request = await engine.next_request()
            read = VOCABULARY.decode(request.prompt)
            is_called = "<call>" in read.partition("arguments")[2].partition(word)[2]
            offers = "Tools" in read
            argument = "input" if "input" in read else "word"
            text = f"{word} {RIGHT[word]}"
            if offers and not is_called:
                text = CALLED.format(argument=argument, word=word)
            engine.say(request, *VOCABULARY.encode(text), VOCABULARY.eos_id)
            engine.end(request)
            await until(lambda id=request.id: id not in engine.running)

    async with serving(app) as url:
        with agent_keys.admitted(session, before_turn=fresh) as (key, _):
            llm = ModelAccess(base_url=f"{url}/v1", api_key=key, model="m")
            answers = asyncio.create_task(answering())
            await agent(problem, llm, None)
            answers.cancel()
        found = []
        for line in session.lines:
            tokens, imitated = [], []
            for segment in line.segments:
                if segment.is_sampled:
                    imitated += range(len(tokens), len(tokens) + len(segment.token_ids))
                tokens += segment.token_ids
            if imitated:
                found.append(Demonstration(tuple(tokens), tuple(imitated)))
        await gateway.aclose()
    return found


async def taught(place):
    """A directory with a model that mostly does what the agents expect of it."""
    shown = [
        one
        for agent in FRAMEWORKS.values()
        for problem in frameworkagents.few(0)
        for one in await demonstrated(agent, problem)
    ]
    longest = max(len(one.token_ids) for one in shown)
    config = ModelConfig(
        vocab_size=VOCABULARY.vocab_size, max_context=longest + 120, eos_id=VOCABULARY.eos_id
    )
    model = Llama(config, seed=0)
    settings = WarmupSettings(steps=140, batch=len(shown) // 4, rest=0.02)
    loss = await asyncio.to_thread(imitate, model, cycle(shown), settings=settings)
    save_model(model, place)
    VOCABULARY.save(place)
    return loss


def a_run(place, model):
    tasks = "".join(
        f'  {name}: {{agent: "{HERE}:{name}", problems: "{HERE}:problems", '
        f'reward: "{HERE}:score"}}\n'
        for name in FRAMEWORKS
    )
    path = place / "run.yaml"
    path.write_text(
        f"name: frameworks\nmodel: {model}\nsteps: {STEPS}\ngroups: {len(FRAMEWORKS)}\n"
        f"group_size: {GROUP_SIZE}\nenvironments: 16\nretries: 0\ncheckpoint_every: 0\n"
        f"tasks:\n{tasks}train: {{min_samples: 1, lr: 1.0e-4}}\n"
    )
    return path


async def test_agents_of_frameworks_train_on_the_very_tokens_they_were_given(tmp_path):
    agentwork.HEARD.clear()
    await taught(tmp_path / "model")
    agentwork.HEARD.clear()
    groups, records = await trained(a_run(tmp_path, tmp_path / "model"), tmp_path / "out")
    gc.collect()  # A run that ends cancels its attempts, and the SDK leaves coroutines behind.
    assert max(record.report.fresh_error for record in records) <= 1e-4
    trajectories = [t for group in groups for t in group.trajectories]
    assert Counter(t.task for t in trajectories) == dict.fromkeys(FRAMEWORKS, STEPS * GROUP_SIZE)
    fine = {TrajectoryStatus.OK, TrajectoryStatus.TRUNCATED, TrajectoryStatus.TASK_FAILED}
    assert {t.status for t in trajectories} <= fine
    heard = Counter(frozenset(Counter(found).items()) for found in agentwork.HEARD.values())
    for trajectory in trajectories:
        segments = [one for line in sampled_in(trajectory) for one in line]
        heat = 0.7 if trajectory.task == "typed" else 1.0
        assert {one.temperature for one in segments} == {heat}
        # All that one attempt heard, each answer as often as it was sampled.
        heard[frozenset(Counter(one.token_ids for one in segments).items())] -= 1
    assert min(heard.values()) >= 0, "an attempt was trained on that no agent has made"
    for task, most in {"sdk": 2, "typed": 2, "graph": 2, "delegating_sdk": 2}.items():
        turns = [len(line) for t in trajectories if t.task == task for line in sampled_in(t)]
        assert max(turns) >= most, f"no attempt of {task} has called its tool"
    for task in ("delegating_sdk", "graph"):  # A sub-agent, and a history that was summed up.
        assert max(len(t.conversations) for t in trajectories if t.task == task) >= 2
