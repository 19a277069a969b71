"""The evaluations of a run: held-out problems on its own engines, while it goes on.

- An evaluation begins when a version serves on every engine, and the next version is delivered only
  after its end: one version gives all of its answers. Attempts and training go on meanwhile.
- `evaluations.jsonl` has a line for each. A resumed run forgets those of steps that it makes again,
  and repeats one that had not ended.
- The version that did best is kept as a model's directory, `best`, which is a link that is replaced
  in one move.
- Whether the run ends early is a function of the lines (`why_over`), so a resumed run knows it.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import msgspec
from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.pipeline.evaluation import Evaluation
from artangram.pipeline.settings import ExamPlan
from artangram.train import checkpoint

logger = logging.getLogger(__name__)

FILE_NAME = "evaluations.jsonl"
BEST_NAME = "best"


class ExamRecord(Struct, frozen=True, kw_only=True):
    """One evaluation, as a line of the file."""

    step: int
    version: int
    took_s: float
    is_best: bool
    """It did better than all before it."""
    found: Evaluation


class Ask(Protocol):
    """Evaluates the model that serves now; `name` begins those of its attempts."""

    def __call__(self, *, name: str) -> Awaitable[Evaluation]: ...


WriteModel = Callable[[int, Path], None]
"""Fill a directory with the model of a version that is published."""


class Exams:
    """See the module."""

    def __init__(
        self,
        plan: ExamPlan,
        *,
        out: Path,
        steps: int,
        after_step: int,
        ask: Ask,
        write_model: WriteModel,
        on_exam: Callable[[ExamRecord], None],
    ) -> None:
        self._plan = plan
        self._out = out
        self._steps = steps
        self._ask = ask
        self._write_model = write_model
        self.records = _kept(out / FILE_NAME, after_step)
        self._on_exam = on_exam
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Exams: {len(self.records)} made, every {self._plan.every} steps>"

    @property
    def why_over(self) -> str:
        """Why the run ends before its last step; empty if it does not."""
        return why_over(self._plan, self.records)

    def begin(self, step: int, *, version: int) -> None:
        """Start one if it is time for it; `version` serves on every engine."""
        if self._running is None and self._is_due(step, version):
            self._running = asyncio.create_task(self._made(step, version))

    async def settled(self) -> None:
        """Return when none is under way. Raises what made it impossible to keep its result."""
        if self._running is not None:
            running, self._running = self._running, None
            try:
                await running
            finally:
                running.cancel()

    async def aclose(self) -> None:
        """Give up what is under way."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    def _is_due(self, step: int, version: int) -> bool:
        every = self._plan.every
        if not every or self.why_over or (step % every and step < self._steps):
            return False
        return all(record.version != version for record in self.records)

    async def _made(self, step: int, version: int) -> None:
        began_at = time.monotonic()
        try:
            found = await self._ask(name=f"eval-{uuid4().hex[:6]}-{step}")
        except InfraFailed as error:
            logger.warning("the evaluation of step %d failed, the run goes on: %s", step, error)
            return
        record = ExamRecord(
            step=step,
            version=version,
            took_s=time.monotonic() - began_at,
            is_best=all(found.success > before.found.success for before in self.records),
            found=found,
        )
        await asyncio.to_thread(self._write, record)
        self.records.append(record)
        self._on_exam(record)

    def _write(self, record: ExamRecord) -> None:
        """The model first: a crash between the two repeats the evaluation and loses no model."""
        if record.is_best:
            self._keep(record)
        with (self._out / FILE_NAME).open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

    def _keep(self, record: ExamRecord) -> None:
        def write(directory: Path) -> None:
            self._write_model(record.version, directory)
            (directory / "evaluation.json").write_bytes(msgspec.json.encode(record) + b"\n")

        place = self._out / f"{BEST_NAME}-{record.step:08d}"
        checkpoint.put(place, write=write)
        link = self._out / f"{BEST_NAME}{checkpoint.UNFINISHED}"
        link.unlink(missing_ok=True)
        link.symlink_to(place.name)
        os.replace(link, self._out / BEST_NAME)
        for old in self._out.glob(f"{BEST_NAME}-*"):
            if old != place:
                shutil.rmtree(old, ignore_errors=True)


def why_over(plan: ExamPlan, records: Sequence[ExamRecord]) -> str:
    """Why a run with these evaluations ends; empty if it goes on."""
    if not records or not plan.every:
        return ""
    best = max(records, key=lambda record: record.found.success)
    if plan.goal is not None and best.found.success >= plan.goal:
        return f"step {best.step} reached {best.found.success:.3f} of {plan.goal:g}"
    since = len(records) - 1 - records.index(best)
    if plan.patience and since >= plan.patience:
        record = f"{best.found.success:.3f} of step {best.step}"
        return f"{since} evaluations in a row did not exceed the {record}"
    return ""


def read(path: Path) -> list[ExamRecord]:
    """The evaluations of a file; a last line that a crash cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [msgspec.json.decode(line, type=ExamRecord) for line in lines[:-1] if line]


def scalars(record: ExamRecord) -> dict[str, float]:
    """What is worth a curve, by name."""
    by_task = {f"eval/{task}": value for task, value in record.found.by_task.items()}
    return {"eval": record.found.success, **by_task, "run/eval_s": record.took_s}


def _kept(path: Path, after_step: int) -> list[ExamRecord]:
    """Those of steps that are not made again; the file forgets the others."""
    kept = [r for r in read(path) if r.step <= after_step] if after_step else []
    if path.exists():
        unfinished = path.with_suffix(checkpoint.UNFINISHED)
        unfinished.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in kept))
        unfinished.rename(path)
    return kept
