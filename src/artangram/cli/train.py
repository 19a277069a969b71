"""`artangram train`: a training run from a file, from the start or from its last checkpoint."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from errno import EDQUOT, ENOSPC
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from artangram.cli.client import Token, Url, plainly_refused
from artangram.cli.output import JsonFile, Printer, make_folder, tell_ignored
from artangram.cli.rundashboard import DashboardPort, NoDashboard, RunDashboard, looked_at
from artangram.cli.train_plan import check_plan, plan_of, show_plan
from artangram.cli.train_view import acts_of, busy_of, exam_line, line_of
from artangram.config.cluster import ClusterFile
from artangram.config.train import TrainSpec, check_tasks, made_tasks, read_train
from artangram.core.errors import BadInput
from artangram.train.checkpoint import checkpoints, latest

if TYPE_CHECKING:
    from artangram.pipeline.clusterclient import ClusterClient
    from artangram.pipeline.exams import ExamRecord
    from artangram.pipeline.metrics import StepRecord


class _RunService(NamedTuple):
    url: str | None
    token: str | None
    looked_at: RunDashboard | None


def train(
    file: Annotated[
        Path, typer.Argument(help="The training run (YAML); docs/training.md describes it.")
    ],
    out: Annotated[Path, typer.Option(help="Directory for checkpoints and metrics.")] = Path("out"),
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint.")] = False,
    print_plan: Annotated[
        bool, typer.Option(help="Print what would run, and run nothing.")
    ] = False,
    url: Url = None,
    token: Token = None,
    dashboard: DashboardPort = 0,
    no_dashboard: NoDashboard = False,
    json: JsonFile = None,
) -> None:
    """Train a model on tasks that use a cluster.

    With `--url` the run uses a service that several runs may share, each under its own name.
    Without, it starts its own cluster, as `cluster:` in the file describes it.
    """
    spec = read_train(file)
    output = Printer(json)
    # Where a run's own tasks lie: beside its file, as for a program that is started.
    sys.path.insert(0, str(file.parent.resolve()))
    check_tasks(file, spec)
    if spec.run.eval.every:
        check_tasks(file, spec, is_exam=True)
    if url is None:
        tell_ignored(output.console, f"cluster of {file}", _unused(spec.cluster), verb="train")
    if print_plan:
        check_plan(file, spec, has_own_cluster=url is None)
        show_plan(spec, output)
        output.json(plan_of(spec))
        return
    place = out / spec.run.name
    if resume:
        latest(place / "checkpoints")  # A slip in --out opens no cluster and makes no folder.
    elif checkpoints(place / "checkpoints"):
        fix = "continue it with --resume, or name another --out"
        raise BadInput(str(place), "already holds a run", fix)
    import_module("artangram.pipeline.training")  # What is not installed is named before the rest.
    check_plan(file, spec, has_own_cluster=url is None)
    make_folder(place / "cluster")
    look = None if no_dashboard else RunDashboard(dashboard, url, token)
    service = _RunService(url, token, look)
    with _plainly_ended(place):
        last = asyncio.run(_run(spec, place, output, resume=resume, service=service))
    if (why := _why_over(spec, place, has_stepped=last is not None)) is not None:
        output.console.print(f"{place}: {why}", soft_wrap=True)
    output.json(last)


def _why_over(spec: TrainSpec, place: Path, *, has_stepped: bool) -> str | None:
    """What there is to say of a run that ended before its last step, or made none."""
    from artangram.pipeline import exams

    if early := exams.why_over(spec.run.eval, exams.read(place / exams.FILE_NAME)):
        return f"ended early: {early}; change `eval` and say --resume to go on"
    if has_stepped:
        return None
    return f"all of its {spec.run.steps} steps are made; raise `steps` to go on"


def _unused(cluster: ClusterFile) -> Iterator[str]:
    """The fields that a run's own cluster, which has one job and no callers, does not use."""
    yield from cluster.ignored_live()
    yield from (key for key in ("jobs", "images") if getattr(cluster, key))


@contextmanager
def _plainly_ended(place: Path) -> Iterator[None]:
    """Around a run: what stops it is said in one line, and how to go on."""
    from artangram.rollout.defects import EnvironmentDefect
    from artangram.weights.store import StoreFull

    fix = "free some space and continue with --resume"
    try:
        yield
    except EnvironmentDefect as defect:
        print(defect.traceback, file=sys.stderr)
        raise
    except StoreFull as error:
        raise BadInput("weights", str(error), fix) from error
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT):
            raise
        raise BadInput(str(place), f"nothing more can be written: {error}", fix) from error
    except KeyboardInterrupt:
        if checkpoints(place / "checkpoints"):
            print("continue from the last checkpoint with --resume", file=sys.stderr)
        raise


@asynccontextmanager
async def _opened_cluster(
    spec: TrainSpec, place: Path, service: _RunService, *, resume: bool
) -> "AsyncIterator[ClusterClient]":
    from artangram.config.providers import providers_of
    from artangram.pipeline.clusterclient import own_cluster, shared_cluster

    job, cluster = spec.run.name, spec.cluster
    if service.url is None:
        opening = own_cluster(
            place / "cluster",
            job=job,
            policy=cluster.policy,
            cores=cluster.cores,
            providers=providers_of(cluster.provider),
            memory_mb=cluster.memory_mb,
            options=cluster.options,
        )
    else:
        opening = shared_cluster(service.url, token=service.token, job=job, resume=resume)
    with plainly_refused():
        async with opening as opened:
            yield opened


async def _run(
    spec: TrainSpec, place: Path, output: Printer, *, resume: bool, service: _RunService
) -> "StepRecord | None":
    last = None
    opening = output.console.status("opening the cluster and the engines, then the first step")

    def show(record: "StepRecord") -> None:
        nonlocal last
        last = record
        opening.stop()
        output.console.print(line_of(record, spec.run.steps), soft_wrap=True)
        if acts := acts_of(record.usage):
            below = f"  ACT {acts}; at work: {busy_of(record.usage)}"
            output.console.print(below, style="dim", soft_wrap=True)

    def show_exam(record: "ExamRecord") -> None:
        opening.stop()
        output.console.print(exam_line(record), soft_wrap=True)

    with opening:  # Seen on a terminal only.
        async with (
            _opened_cluster(spec, place, service, resume=resume) as opened,
            looked_at(opened, spec.run, place, output.console, wanted=service.looked_at),
        ):
            await _lived(spec, place, opened, show=(show, show_exam), resume=resume)
    return last


async def _lived(
    spec: TrainSpec,
    place: Path,
    opened: "ClusterClient",
    *,
    show: "tuple[Callable[[StepRecord], None], Callable[[ExamRecord], None]]",
    resume: bool,
) -> None:
    """The run in its cluster, in as many lives as it takes."""
    from artangram.pipeline.loops import LOOPS
    from artangram.pipeline.opening import open_training
    from artangram.pipeline.supervise import lived

    tasks = made_tasks(spec, opened.client, job=spec.run.name)
    exam = (
        made_tasks(spec, opened.client, job=spec.run.name, is_exam=True)
        if spec.run.eval.every
        else []
    )

    async def life(resume: bool) -> None:
        async with open_training(
            spec.run,
            tasks=tasks,
            model=spec.model,
            out=place,
            engines=spec.engines,
            cluster=opened,
            stages=spec.stages,
            resume=resume,
            exam_tasks=exam,
            teachers={name: task.teachers for name, task in spec.tasks.items() if task.teachers},
        ) as training:
            training.on_step, training.on_exam = show
            await LOOPS[spec.run.mode](training)
            await training.examined()

    await lived(life, out=place, resume=resume)
