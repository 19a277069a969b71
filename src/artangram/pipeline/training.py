"""A run put together: the verbs that the `loops` are written in.

- `collect` waits for a batch, `learn` makes the next version from it, `announce` says so before the
  next batch is asked for, `deliver` brings it to the engines, `keep` writes a checkpoint when it is
  time for one.
- A checkpoint is one moment: weights, optimiser, where every task is, and the groups that are
  complete. What comes after it is done again after a crash, so nothing is lost or trained on twice.
  It is a model's directory as well: engines, transformers and `artangram eval` read it.
- `deliver` also begins the evaluations of the run (`exams`), and waits for the one before.
- Training itself runs in a thread, or in processes of its own; sampling and environments go on
  meanwhile.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from artangram.core.rollout.trajectory import Batch, Group
from artangram.gateway import Gateway
from artangram.models.beside import copy_beside_weights
from artangram.models.config import FILE_NAME as CONFIG_NAME
from artangram.models.tokenizer import Tokenizer
from artangram.pipeline.clusterclient import ClusterClient
from artangram.pipeline.enginepools import EnginesSpec
from artangram.pipeline.engines import slots_of
from artangram.pipeline.exams import Ask, ExamRecord, Exams, scalars
from artangram.pipeline.fleet import EngineFleet
from artangram.pipeline.meter import ActionUsage
from artangram.pipeline.metrics import Metrics, StepRecord
from artangram.pipeline.runstate import RunState, write_state
from artangram.pipeline.settings import RunSettings
from artangram.pipeline.teachers import Classroom
from artangram.pipeline.transcripts import Transcripts
from artangram.rollout import Rollout
from artangram.train import checkpoint
from artangram.train.learner import Learner
from artangram.train.tally import StepMetrics
from artangram.weights import WeightStore, roll, verified_pull

logger = logging.getLogger(__name__)

QUIET_S = 60.0
"""Without a batch for this long, a run logs what it waits for."""

T = TypeVar("T")
Reshape = Callable[[Sequence[Group]], Sequence[Group]]
"""Changes groups before the trainer learns from them."""


class _Made(Struct, frozen=True):
    """A step that was learned."""

    step: int
    report: StepMetrics
    problems: tuple[str, ...]
    collect_s: float
    train_s: float


class Training:
    """See the module. Made by `opening.open_training`."""

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
        ask: Ask,
        cluster: ClusterClient | None = None,
        first_step: int = 0,
        reshape: Reshape | None = None,
        classroom: Classroom | None = None,
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
        self.on_exam: Callable[[ExamRecord], None] = lambda record: None
        self.exams = Exams(
            settings.eval,
            out=out,
            steps=settings.steps,
            after_step=first_step,
            ask=ask,
            write_model=self._copy,
            on_exam=self._examined,
        )
        self.fleet = EngineFleet(
            versions=rollout.updates.versions,
            pull=verified_pull(store, reads_again=True),
            gateway=gateway,
        )
        self._store = store
        self._model = model
        self._config = (model / CONFIG_NAME).read_bytes()
        self._cluster = cluster
        self._classroom = classroom
        self._reshape = reshape or (lambda groups: groups)
        self._began_at = time.monotonic() - self.metrics.began_s
        self._made: _Made | None = None
        self._announced_at = 0.0

    def __repr__(self) -> str:
        return f"<Training {self.settings.name}: step {self.step} of {self.settings.steps}>"

    @property
    def goes_on(self) -> bool:
        return self.step < self.settings.steps and not self.exams.why_over

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
        return await self._unless_lost(asking)

    async def _unless_lost(self, asking: asyncio.Future[T]) -> T:
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

    async def examined(self) -> None:
        """Return when no evaluation is under way; raises as `collect` does."""
        await self._unless_lost(asyncio.ensure_future(self.exams.settled()))

    async def learn(self, batch: Batch) -> StepMetrics:
        """Train on the batch; its problems are done."""
        began_at = time.monotonic()
        groups = self._reshape(batch.groups)
        said = None if self._classroom is None else await self._classroom.said(groups)
        report = await asyncio.to_thread(self.trainer.step, groups, teachers=said)
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
        made, exposed_s, examined_s, updates = self._made, 0.0, 0.0, self.rollout.updates
        if updates.live < updates.current:
            await self.examined()
            examined_s = time.monotonic() - self._announced_at
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
            examined_s=examined_s,
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
        self.exams.begin(made.step, version=updates.live)

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
            write_state(state, directory)

        checkpoint.save(self.out / "checkpoints", state.step, write=write)

    def _write(self, directory: Path) -> None:
        (directory / CONFIG_NAME).write_bytes(self._config)
        # The weights come last: a directory without them is not a model.
        self.trainer.save_weights(directory)

    def _copy(self, version: int, directory: Path) -> None:
        """A published version as a model's directory that stays."""
        copy_beside_weights(self._model, directory)
        for path in self._store.path(version).glob("*.safetensors"):
            shutil.copyfile(path, directory / path.name)

    def _examined(self, record: ExamRecord) -> None:
        self.metrics.tell(scalars(record), step=record.step)
        self.on_exam(record)

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
