"""A run put together: the verbs that the `loops` are written in.

- `collect` waits for a batch, `learn` makes the next version from it, `announce` says so before the
  next batch is asked for, `deliver` brings it to the engines, `keep` writes a checkpoint when it is
  time for one.
- A checkpoint is one moment: weights, optimiser, where every task is, and the groups that are
  complete. What comes after it is done again after a crash, so nothing is lost or trained on twice.
  It is a model's directory as well: engines, transformers and `artangram eval` read it.
- Training itself runs in a thread, or in processes of its own; sampling and environments go on
  meanwhile.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.rollout.trajectory import Batch, Group
from artangram.envs.protocol import Task
from artangram.gateway import Gateway
from artangram.gateway.engines.protocol import Engine, EngineGone
from artangram.models.beside import copy_beside_weights
from artangram.models.config import FILE_NAME as CONFIG_NAME
from artangram.models.loading import load_tokenizer
from artangram.models.tokenizer import Tokenizer
from artangram.pipeline.agentserver import ServedDoor, agent_door
from artangram.pipeline.clusterclient import ClusterClient
from artangram.pipeline.enginepools import EnginesSpec
from artangram.pipeline.engines import slots_of
from artangram.pipeline.fleet import EngineFleet
from artangram.pipeline.meter import ActionUsage
from artangram.pipeline.metrics import Metrics, StepRecord
from artangram.pipeline.settings import RunSettings
from artangram.pipeline.transcripts import Transcripts
from artangram.rollout import Rollout, RolloutState, Source, Stage
from artangram.scratchdir import ScratchDir
from artangram.train import checkpoint
from artangram.train.learner import Learner
from artangram.train.placing import placed
from artangram.train.ranks import Ranks
from artangram.train.tally import StepMetrics
from artangram.train.trainer import Trainer
from artangram.weights import WeightStore, roll, verified_pull

logger = logging.getLogger(__name__)

STATE_NAME, TRAINER_LOG = "run.msgpack", "trainer.log"
QUIET_S = 60.0
"""Without a batch for this long, a run logs what it waits for."""

Reshape = Callable[[Sequence[Group]], Sequence[Group]]
"""Changes groups before the trainer learns from them."""


class RunState(Struct, frozen=True, kw_only=True):
    """What a checkpoint holds beside the trainer's own files."""

    settings: RunSettings
    step: int
    rollout: RolloutState
    cluster_ended: int = 0
    """Actions of all jobs that had ended in the cluster."""


class _Made(Struct, frozen=True):
    """A step that was learned."""

    step: int
    report: StepMetrics
    problems: tuple[str, ...]
    collect_s: float
    train_s: float


class Training:
    """See the module. Made by `open_training`."""

    def __init__(
        self,
        settings: RunSettings,
        *,
        out: Path,
        trainer: Learner,
        rollout: Rollout,
        gateway: Gateway,
        store: WeightStore,
        tokenizer: Tokenizer,
        model: Path,
        cluster: ClusterClient | None = None,
        first_step: int = 0,
        reshape: Reshape | None = None,
    ) -> None:
        self.settings = settings
        self.out = out
        self.trainer = trainer
        self.rollout = rollout
        self.gateway = gateway
        self.tokenizer = tokenizer
        self.step = first_step
        self.metrics = Metrics(
            out, after_step=first_step, run=settings.name, trackers=settings.report_to
        )
        self.transcripts = Transcripts(out, tokenizer, most=settings.transcripts)
        self.on_step: Callable[[StepRecord], None] = lambda record: None
        self.fleet = EngineFleet(
            versions=rollout.updates.versions,
            pull=verified_pull(store, reads_again=True),
            gateway=gateway,
        )
        self._store = store
        self._model = model
        self._config = (model / CONFIG_NAME).read_bytes()
        self._cluster = cluster
        self._reshape = reshape or (lambda groups: groups)
        self._began_at = time.monotonic() - self.metrics.began_s
        self._made: _Made | None = None
        self._announced_at = 0.0

    def __repr__(self) -> str:
        return f"<Training {self.settings.name}: step {self.step} of {self.settings.steps}>"

    @property
    def goes_on(self) -> bool:
        return self.step < self.settings.steps

    async def open_engines(self, engines: EnginesSpec) -> None:
        """Start them, with the weights that are published."""
        seed, log = self.settings.seed, self.out / "engines.log"
        await self.fleet.open(
            slots_of(engines, seed=seed, max_context=self.trainer.max_context, log=log)
        )

    async def collect(self) -> Batch:
        """The next batch; raises when the engines or the cluster are gone for good."""
        settings = self.settings
        asking = asyncio.ensure_future(
            self.rollout.sink.batch(settings.groups, min_groups=settings.min_groups)
        )
        waited: set[asyncio.Future[Any]] = {asking, *self._vital}
        done: set[asyncio.Future[Any]] = set()
        try:
            while not done:
                done, _ = await asyncio.wait(
                    waited, timeout=QUIET_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    self._complain()
            for lost in self._vital:
                if lost.done() and not lost.cancelled():
                    lost.result()
            return await asking
        finally:
            asking.cancel()

    async def learn(self, batch: Batch) -> StepMetrics:
        """Train on the batch; its problems are done."""
        began_at = time.monotonic()
        groups = self._reshape(batch.groups)
        report = await asyncio.to_thread(self.trainer.step, groups)
        self.rollout.settle(batch, is_skipped=report.is_skipped)
        self.step += 1
        await asyncio.to_thread(self.transcripts.add, self.step, groups)
        train_s = time.monotonic() - began_at
        problems = tuple(f"{group.task}/{group.problem}" for group in batch.groups)
        self._made = _Made(self.step, report, problems, batch.waited_s, train_s)
        return report

    async def announce(self) -> None:
        """Write the trainer's version and shed what is too old for it, before the next batch."""
        self._announced_at = time.monotonic()
        version = self.trainer.version
        if version > self.rollout.updates.current:
            await asyncio.to_thread(self._store.publish_with, version, self._write)
            self.rollout.announce(version)

    async def deliver(self) -> None:
        """Bring the announced version to the engines; the step is over then."""
        assert self._made is not None, "learn first"
        made, exposed_s, updates = self._made, 0.0, self.rollout.updates
        if updates.live < updates.current:
            rolled = await roll(
                self.gateway,
                updates.current,
                pull=verified_pull(self._store),
                versions=updates.versions,
                mode=self.settings.bound.update,
            )
            exposed_s = rolled.exposed_s
            self.rollout.go_live(rolled.version)
            for old in updates.versions.retire():
                self._store.remove(old)
        record = StepRecord(
            step=made.step,
            at_s=round(time.monotonic() - self._began_at, 4),
            collect_s=made.collect_s,
            train_s=made.train_s,
            publish_s=time.monotonic() - self._announced_at,
            exposed_s=exposed_s,
            report=made.report,
            ended=self._ended(),
            cut_off=self.rollout.tally.biases(),
            tokens={name: copy(one) for name, one in self.gateway.counters.tasks.items()},
            lost_engines=self.fleet.lost,
            stalled_engines=self.gateway.counters.stalled,
            problems=made.problems,
            usage=ActionUsage() if self._cluster is None else self._cluster.meter.take(),
        )
        self.metrics.add(record)
        self.on_step(record)

    async def keep(self) -> None:
        """Write a checkpoint if it is time for one."""
        every = self.settings.checkpoint_every
        if every and (self.step % every == 0 or not self.goes_on):
            cluster_ended = await self._cluster_ended()
            state = RunState(
                settings=self.settings,
                step=self.step,
                rollout=self.rollout.save(),
                cluster_ended=cluster_ended,
            )
            await asyncio.to_thread(self._save, state)

    def _save(self, state: RunState) -> None:
        def write(directory: Path) -> None:
            copy_beside_weights(self._model, directory)
            self.trainer.save(directory)
            (directory / STATE_NAME).write_bytes(msgspec.msgpack.encode(state))

        checkpoint.save(self.out / "checkpoints", state.step, write=write)

    def _write(self, directory: Path) -> None:
        (directory / CONFIG_NAME).write_bytes(self._config)
        # The weights come last: a directory without them is not a model.
        self.trainer.save_weights(directory)

    @property
    def _vital(self) -> "list[asyncio.Future[None]]":
        """Futures that raise when something the run needs is gone."""
        client = None if self._cluster is None else self._cluster.lost
        return [self.fleet.failed] if client is None else [self.fleet.failed, client]

    async def _cluster_ended(self) -> int:
        return 0 if self._cluster is None else (await self._cluster.client.status()).ended

    async def look_back(self, state: RunState) -> None:
        """Log how many actions ended since the checkpoint and are repeated."""
        since = await self._cluster_ended() - state.cluster_ended
        if since < 0:
            logger.warning("the cluster lost %d actions: its journal was replaced", -since)
        else:
            logger.info("resumed at step %d; %d actions ended since", state.step, since)

    def _complain(self) -> None:
        """Log why there was no batch for a long time."""
        rollout, failed = self.rollout, self.rollout.tally.last_failure
        why = f"; the last failure: {failed}" if failed else ""
        logger.warning("still no batch: %r, %r%s", rollout.dispatcher, rollout.sink, why)

    def _ended(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for by_status in self.rollout.tally.ended.values():
            for status, lengths in by_status.items():
                counts[status.value] = counts.get(status.value, 0) + lengths.count
        return counts


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
) -> AsyncIterator[Training]:
    """A run ready for its first step: weights published, engines in service."""
    engines = engines or EnginesSpec()
    source = Source(tasks, stages=stages, seed=settings.seed)
    state = _saved(settings, out) if resume else None
    async with AsyncExitStack() as stack:
        trainer = await asyncio.to_thread(_learner, settings, model=model, out=out)
        stack.callback(trainer.close)
        if state is not None:
            await asyncio.to_thread(trainer.restore, checkpoint.latest(out / "checkpoints"))
        tokenizer = load_tokenizer(model)
        gateway = _gateway(engines, lambda *lost: training.fleet.on_lost(*lost))
        serving = _door(settings, tasks, gateway, tokenizer=tokenizer, cluster=cluster)
        agents = await stack.enter_async_context(serving)
        rollout = Rollout(
            source,
            gateway,
            plan=settings.plan,
            job=settings.name,
            tokenizer=tokenizer,
            version=trainer.version,
            life=f"{uuid4().hex[:6]}-",
            agents=agents,
        )
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
            cluster=cluster,
            first_step=0 if state is None else state.step,
            reshape=reshape,
        )
        stack.callback(training.metrics.close)
        if state is not None:
            await training.look_back(state)
        await asyncio.to_thread(store.publish_with, trainer.version, training._write)
        stack.push_async_callback(training.fleet.aclose)
        await training.open_engines(engines)
        stack.push_async_callback(gateway.aclose)
        stack.push_async_callback(rollout.aclose)
        yield training


def _door(
    settings: RunSettings,
    tasks: Sequence[Task],
    gateway: Gateway,
    *,
    tokenizer: Tokenizer,
    cluster: ClusterClient | None,
) -> AbstractAsyncContextManager[ServedDoor | None]:
    return agent_door(
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


def _gateway(engines: EnginesSpec, on_lost: Callable[[Engine, EngineGone], None]) -> Gateway:
    return Gateway(affinity=engines.routing, split=engines.splits, on_lost=on_lost)


def _saved(settings: RunSettings, out: Path) -> RunState:
    """What the newest checkpoint holds beside the trainer's own files. Raises `BadInput`."""
    newest = checkpoint.latest(out / "checkpoints")
    try:
        state = msgspec.msgpack.decode((newest / STATE_NAME).read_bytes(), type=RunState)
    except (OSError, msgspec.MsgspecError) as error:
        fix = f"remove {newest} to resume from the one before"
        raise BadInput(str(newest), f"cannot be read: {error}", fix) from error
    if state.settings.seed != settings.seed or state.settings.name != settings.name:
        problem = f"belongs to {state.settings.name!r} with seed {state.settings.seed}"
        raise BadInput(str(newest), problem, "resume with the same name and seed")
    return state
