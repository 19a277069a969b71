"""One demo from start to end: cluster, warm-up, held-out test, training, test again, report."""

import asyncio
import os
import shutil
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

from msgspec import Struct
from rich.console import Console

from artangram.apis.spec import ApiSpec
from artangram.cli.demo.progress import DemoProgress
from artangram.cli.demo.report import write_report
from artangram.cli.demo.resources import Resources, resources_of
from artangram.cli.output import plain_console
from artangram.cli.rundashboard import RunDashboard, looked_at
from artangram.core.errors import BadInput
from artangram.envs.tasks import DEMO_TASKS, Teachable, demo_task, vocabulary
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.orchestrator.client import Client
from artangram.pipeline.clusterclient import ClusterClient, own_cluster
from artangram.pipeline.evaluation import Evaluation, evaluate
from artangram.pipeline.loops import LOOPS
from artangram.pipeline.metrics import StepRecord, read
from artangram.pipeline.opening import open_training
from artangram.pipeline.settings import Exam, RunSettings
from artangram.pipeline.training import Reshape, Training
from artangram.pipeline.warmup import warm_model
from artangram.rollout.source import Stage
from artangram.services.shipped.similarity import similarity
from artangram.train.settings import TrainSettings
from artangram.train.warmup import WarmupSettings

WARMUP = WarmupSettings(steps=500)
SEARCH_LIMIT, SEARCH_WINDOW_S = 100, 1.0
SEARCH_LATENCY_S = 0.5
"""The median of an answer: what a web search takes (`docs/training.md`)."""
DEVICE_MB = 1024
SHARES = {"calc": 2}
"""Groups of a task for each one of the others. Calc has four tools to tell apart: with as many
attempts as the others it is the last to be learned, and in some runs half of it is not."""
EVAL_PROBLEMS = 50
"""Held-out problems of each task."""


class TrainedModel(Struct, frozen=True, kw_only=True):
    """What the training part of the demo found."""

    before: Evaluation
    after: Evaluation
    steps: tuple[StepRecord, ...]
    warmup_s: float
    training_s: float
    total_s: float


class Found(Struct, frozen=True, kw_only=True):
    """What the whole demo found; its report says the same."""

    learned: TrainedModel
    resources: Resources


def demo_settings(steps: int, seed: int, *, mode: str) -> RunSettings:
    """Four passes over each batch: attempts cost more here than learning from them.

    The entropy bonus keeps every choice open at first: without it one kind of question may never
    find its tool, because the others' became the habit.
    The KL term ties the model to how it speaks; without it a task whose batch teaches nothing for
    a while may lose its form to what the others learn.
    """
    return RunSettings(
        name="demo",
        mode=mode,
        steps=steps,
        seed=seed,
        checkpoint_every=25,
        train=TrainSettings(lr=1e-3, epochs=4, kl=0.03, entropy=0.03, fade_steps=steps),
    )


class DemoRun:
    """See the module."""

    def __init__(
        self,
        out: Path,
        *,
        steps: int,
        seed: int,
        tasks: Sequence[str] = DEMO_TASKS,
        mode: str = "asynchronous",
        latency_s: float = SEARCH_LATENCY_S,
        reshape: Reshape | None = None,
        console: Console | None = None,
        look: RunDashboard | None = None,
    ) -> None:
        if unknown := sorted(set(tasks) - set(DEMO_TASKS)):
            raise BadInput(
                "tasks",
                f"{unknown} are not tasks of the demo",
                f"say some of {', '.join(DEMO_TASKS)}",
            )
        self._out = out
        self._settings = demo_settings(steps, seed, mode=mode)
        self._latency_s = latency_s
        self._reshape = reshape
        self._tasks = tasks
        self._console = console or plain_console()
        self._look = look
        self._began_at = time.monotonic()

    async def run(self) -> Found:
        """The whole demo; the report lies in `out` afterwards."""
        learned = await self.learn()
        resources = await asyncio.to_thread(resources_of, self._state)
        text = write_report(self._out, learned, resources)
        self._console.print(text, soft_wrap=True)
        return Found(learned=learned, resources=resources)

    async def learn(self) -> TrainedModel:
        """The demo without its report."""
        shutil.rmtree(self._state, ignore_errors=True)
        async with searching(self._latency_s) as url, self._open_cluster(url) as opened:
            return await self._learn(opened)

    @property
    def _state(self) -> Path:
        return self._out / "cluster"

    @asynccontextmanager
    async def _open_cluster(self, url: str) -> AsyncIterator[ClusterClient]:
        self._console.print("Opening the cluster: sandboxes, a judge that knows meanings, an API.")
        api = ApiSpec(base_url=url, limit=SEARCH_LIMIT, window_s=SEARCH_WINDOW_S)
        options = ClusterOptions(
            # One core each: threads of one model that wait for each other would burn what they
            # are not given while everything else runs beside them.
            devices=len(os.sched_getaffinity(0)),
            device_memory_mb=DEVICE_MB,
            services=(similarity("judge"),) if "judged" in self._tasks else (),
            apis={"search": api},
        )
        async with own_cluster(self._state, job=self._settings.name, options=options) as opened:
            yield opened

    async def _learn(self, opened: ClusterClient) -> TrainedModel:
        settings, client = self._settings, opened.client
        warm_at = time.monotonic()
        model = await self._warmed(client)
        warmup_s = time.monotonic() - warm_at
        tasks: list[Teachable] = [demo_task(name, client) for name in self._tasks]
        held = [demo_task(name, client, held_out=True) for name in self._tasks]
        place = self._out / "run"
        shutil.rmtree(place, ignore_errors=True)
        async with open_training(
            settings,
            tasks=tasks,
            model=model,
            out=place,
            cluster=opened,
            stages=[Stage(shares={name: SHARES.get(name, 1) for name in self._tasks})],
            reshape=self._reshape,
        ) as training:
            before = await self._tested(training, held, "before")
            began_at = time.monotonic()
            async with looked_at(opened, settings, place, self._console, wanted=self._look):
                await self._trained(training)
            training_s = time.monotonic() - began_at
            await training.rollout.aclose()
            after = await self._tested(training, held, "after")
        return TrainedModel(
            before=before,
            after=after,
            steps=tuple(read(place / "metrics.jsonl")),
            warmup_s=warmup_s,
            training_s=training_s,
            total_s=time.monotonic() - self._began_at,
        )

    async def _trained(self, training: Training) -> None:
        with DemoProgress(self._console, self._settings.steps) as progress:
            training.on_step = progress.show
            await LOOPS[self._settings.mode](training)

    async def _warmed(self, client: Client) -> Path:
        """In a thread that ends when its caller stops waiting."""
        self._console.print("Warming up: the model imitates attempts whose choices are random.")
        is_given_up = Event()
        with self._console.status("warming up") as status:  # Seen on a terminal only.

            def on_step(step: int, loss: float) -> None:
                if is_given_up.is_set():
                    raise InterruptedError
                status.update(f"warming up: step {step} of {WARMUP.steps}")

            try:
                return await asyncio.to_thread(self._warm, client, on_step)
            finally:
                is_given_up.set()

    def _warm(self, client: Client, on_step: Callable[[int, float], None]) -> Path:
        return warm_model(
            self._out / "models",
            tasks=[demo_task(name, client) for name in DEMO_TASKS],
            vocabulary=vocabulary(),
            seed=self._settings.seed,
            settings=WARMUP,
            on_step=on_step,
        )

    async def _tested(self, training: Training, held: Sequence[Teachable], name: str) -> Evaluation:
        with self._console.status("solving held-out problems"):
            found = await evaluate(
                held,
                training.gateway,
                Exam(problems=EVAL_PROBLEMS),
                tokenizer=training.tokenizer,
                name=name,
            )
        tasks = ", ".join(f"{task} {value:.2f}" for task, value in found.by_task.items())
        self._console.print(f"Held-out success {name}: {found.success:.2f} ({tasks})")
        return found


@asynccontextmanager
async def searching(latency_s: float = SEARCH_LATENCY_S) -> AsyncIterator[str]:
    """The search API in a process of its own; its address."""
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "artangram.envs.tasks.searchserver",
        f"--limit={SEARCH_LIMIT}",
        f"--window-s={SEARCH_WINDOW_S}",
        f"--latency-s={latency_s}",
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,  # Ctrl-C is for us; it ends when we close its input.
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        port = int(await server.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stdin.close()
        await server.wait()
