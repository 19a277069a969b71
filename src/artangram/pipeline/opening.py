"""A run made ready: trainer, gateway, rollout, engines; everything it opens ends with it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from artangram.envs.protocol import Task
from artangram.gateway import Gateway
from artangram.gateway.engines.protocol import Engine, EngineGone
from artangram.models.loading import load_tokenizer
from artangram.models.tokenizer import Tokenizer
from artangram.pipeline.agentserver import ServedGateway, agent_gateway
from artangram.pipeline.clusterclient import ClusterClient
from artangram.pipeline.enginepools import EnginesSpec
from artangram.pipeline.evaluation import evaluate
from artangram.pipeline.line import watched_line
from artangram.pipeline.runstate import saved_state
from artangram.pipeline.settings import RunSettings
from artangram.pipeline.teachers import Classroom
from artangram.pipeline.training import Reshape, Training
from artangram.rollout import Rollout, Source, Stage
from artangram.scratchdir import ScratchDir
from artangram.train import checkpoint
from artangram.train.learner import Learner
from artangram.train.placing import placed
from artangram.train.ranks import Ranks
from artangram.train.trainer import Trainer
from artangram.weights import WeightStore

TRAINER_LOG = "trainer.log"


@asynccontextmanager
async def open_training(
    settings: RunSettings,
    *,
    tasks: Sequence[Task],
    model: Path,
    out: Path,
    engines: EnginesSpec | None = None,
    cluster: ClusterClient | None = None,
    stages: Sequence[Stage] = (),
    resume: bool = False,
    reshape: Reshape | None = None,
    exam_tasks: Sequence[Task] = (),
    teachers: Mapping[str, Sequence[str]] | None = None,
) -> AsyncIterator[Training]:
    """A run ready for its first step; `exam_tasks` hold problems out, `teachers` go by task."""
    engines = engines or EnginesSpec()
    source = Source(tasks, stages=stages, seed=settings.seed)
    state = saved_state(settings, out) if resume else None
    async with AsyncExitStack() as stack:
        trainer = await asyncio.to_thread(_learner, settings, model=model, out=out)
        stack.callback(trainer.close)
        if state is not None:
            await asyncio.to_thread(trainer.restore, checkpoint.latest(out / "checkpoints"))
        tokenizer = load_tokenizer(model)
        gateway = _gateway(engines, lambda *lost: training.fleet.on_lost(*lost))
        serving = _endpoint(settings, tasks, gateway, tokenizer=tokenizer, cluster=cluster)
        agents = await stack.enter_async_context(serving)
        offered: dict[str, Any] = {"tokenizer": tokenizer, "agents": agents}
        rollout = _rollout(settings, source, gateway, version=trainer.version, **offered)
        if state is not None:
            rollout.restore(state.rollout)
        store = await _store(stack)
        training = Training(
            settings,
            out=out,
            trainer=trainer,
            rollout=rollout,
            gateway=gateway,
            store=store,
            tokenizer=tokenizer,
            model=model,
            ask=partial(evaluate, exam_tasks, gateway, settings.eval, **offered),
            cluster=cluster,
            first_step=0 if state is None else state.step,
            reshape=reshape,
            classroom=await asyncio.to_thread(_classroom, settings, teachers),
        )
        stack.callback(training.metrics.close)
        if state is not None:
            await training.look_back(state)
        await asyncio.to_thread(store.publish_with, trainer.version, training._write)
        stack.push_async_callback(training.fleet.aclose)
        await training.open_engines(engines)
        stack.push_async_callback(gateway.aclose)
        stack.push_async_callback(rollout.aclose)
        await stack.enter_async_context(_watching(settings, rollout, cluster))
        stack.push_async_callback(training.exams.aclose)
        training.exams.begin(training.step, version=trainer.version)
        yield training


def _rollout(
    settings: RunSettings,
    source: Source,
    gateway: Gateway,
    *,
    version: int,
    tokenizer: Tokenizer,
    agents: ServedGateway | None,
) -> Rollout:
    return Rollout(
        source,
        gateway,
        plan=settings.plan,
        job=settings.name,
        tokenizer=tokenizer,
        version=version,
        life=f"{uuid4().hex[:6]}-",
        agents=agents,
    )


def _watching(
    settings: RunSettings, rollout: Rollout, cluster: ClusterClient | None
) -> AbstractAsyncContextManager[None]:
    """While it is open, the rollout looks at the line of its cluster."""
    if cluster is None:
        return nullcontext()
    return watched_line(cluster.client, settings.name, rollout.dispatcher.on_line)


def _endpoint(
    settings: RunSettings,
    tasks: Sequence[Task],
    gateway: Gateway,
    *,
    tokenizer: Tokenizer,
    cluster: ClusterClient | None,
) -> AbstractAsyncContextManager[ServedGateway | None]:
    return agent_gateway(
        tasks,
        gateway,
        tokenizer=tokenizer,
        model=settings.name,
        client=None if cluster is None else cluster.client,
        address=settings.gateway,
    )


async def _store(stack: AsyncExitStack) -> WeightStore:
    """For the versions of the weights, in shared memory; it ends with the stack."""
    home = await asyncio.to_thread(ScratchDir.opened)
    stack.callback(home.close)
    return WeightStore(home.directory / "weights")


def _learner(settings: RunSettings, *, model: Path, out: Path) -> Learner:
    """Ready for its first step; takes seconds. Raises `BadInput`."""
    train = settings.train
    if train.processes > 1:
        return Ranks(model, train, seed=settings.seed, log=out / TRAINER_LOG)
    return Trainer(placed(model, train.device, seed=settings.seed), train)


def _classroom(
    settings: RunSettings, teachers: Mapping[str, Sequence[str]] | None
) -> Classroom | None:
    return Classroom(teachers, device=settings.train.device) if teachers else None


def _gateway(engines: EnginesSpec, on_lost: Callable[[Engine, EngineGone], None]) -> Gateway:
    return Gateway(affinity=engines.routing, split=engines.splits, on_lost=on_lost)
