"""`artangram train`: a training run from a file, from the start or from its last checkpoint."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from artangram.cli.house import Token, Url, plainly_refused
from artangram.cli.output import Output
from artangram.cli.train_view import acts_of, busy_of, line_of
from artangram.config.train import TrainSpec, read_train
from artangram.core.errors import BadInput
from artangram.train.settings import TrainSettings

if TYPE_CHECKING:
    from artangram.pipeline.housing import Housed
    from artangram.pipeline.metrics import StepRecord


class _Service(NamedTuple):
    url: str | None
    token: str | None


def train(
    file: Annotated[Path, typer.Argument(help="The run (YAML); see docs/training.md.")],
    out: Annotated[Path, typer.Option(help="Folder for checkpoints and metrics.")] = Path("out"),
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.")] = False,
    print_plan: Annotated[bool, typer.Option(help="Say what would run, and run nothing.")] = False,
    url: Url = None,
    token: Token = None,
    json: Annotated[str | None, typer.Option(help="Write the last step to a file, or -.")] = None,
) -> None:
    """Train a model on tasks that use a house.

    With `--url` the house is a service that several runs may share, each under its own name;
    without, it is one of the run's own, as `house:` in the file describes it.
    """
    spec = read_train(file)
    output = Output(json)
    # Where a run's own tasks lie: beside its file, as for a program that is started.
    sys.path.insert(0, str(file.parent.resolve()))
    if print_plan:
        show_plan(spec, output)
        return
    place = out / spec.run.name
    if not resume and (place / "checkpoints").exists():
        fix = "say --resume to go on with it, or name another --out"
        raise BadInput(str(place), "holds a run already", fix)
    last = asyncio.run(_run(spec, place, output, resume=resume, service=_Service(url, token)))
    output.json(last)


def show_plan(spec: TrainSpec, output: Output) -> None:
    """What a run comes to, in numbers."""
    run, house = spec.run, spec.house
    rows = [
        ("mode", run.mode, f"staleness at most {run.bound.max_staleness}"),
        ("a step", f"{run.groups} x {run.group_size}", f"{run.groups * run.group_size} attempts"),
        ("environments", str(run.environments), f"at most {run.plan.limits.most_held} held"),
        ("engines", str(run.engines), f"{run.slots} requests each"),
        ("the run", f"{run.steps} steps", f"{run.steps * run.groups} problems"),
        ("checkpoints", f"every {run.checkpoint_every}" if run.checkpoint_every else "none", ""),
        ("trainer", f"{run.train.processes} x {run.train.device}", _together(run.train)),
        ("loss", run.train.loss, f"lr {run.train.lr:g}, {run.train.epochs} epochs"),
        ("house", f"{house.cores or 'all'} cores", f"policy {house.policy}"),
        *(("service", service.id, "") for service in house.offers.services),
        *(
            ("api", name, f"{api.limit} per {api.window_s:g} s")
            for name, api in house.offers.apis.items()
        ),
    ]
    output.table(f"{spec.run.name}: {spec.model}", ["what", "how much", "so"], rows)
    for stage in spec.stages:
        title = f"tasks from version {stage.from_version} on" if stage.from_version else "tasks"
        total = sum(stage.shares.values())
        tasks = [
            [name, str(share), f"{run.groups * share / total:.1f}"]
            for name, share in stage.shares.items()
        ]
        output.table(title, ["task", "share", "groups a step"], tasks)


def _together(train: TrainSettings) -> str:
    if train.processes == 1:
        return "in the run's own process"
    return {"ddp": "a copy of the model each", "fsdp": "a part of the model each"}[train.backend]


@asynccontextmanager
async def _housed(
    spec: TrainSpec, place: Path, service: _Service, *, resume: bool
) -> "AsyncIterator[Housed]":
    from artangram.pipeline.housing import own_house, shared_house

    job, house = spec.run.name, spec.house
    if service.url is None:
        opening = own_house(
            place / "house",
            job=job,
            policy=house.policy,
            cores=house.cores,
            memory_mb=house.memory_mb,
            offers=house.offers,
        )
    else:
        opening = shared_house(service.url, token=service.token, job=job, resume=resume)
    with plainly_refused(service.url):
        async with opening as housed:
            yield housed


async def _run(
    spec: TrainSpec, place: Path, output: Output, *, resume: bool, service: _Service
) -> "StepRecord | None":
    from artangram.pipeline.lives import lived
    from artangram.pipeline.loops import LOOPS
    from artangram.pipeline.taskfactory import task_named
    from artangram.pipeline.training import opened

    last = None

    def show(record: "StepRecord") -> None:
        nonlocal last
        last = record
        output.console.print(line_of(record, spec.run.steps), soft_wrap=True)
        if acts := acts_of(record.usage):
            below = f"  ACT {acts}; at work: {busy_of(record.usage)}"
            output.console.print(below, style="dim", soft_wrap=True)

    async with _housed(spec, place, service, resume=resume) as housed:
        tasks = [
            task_named(name, task.task, housed.house, job=spec.run.name, options=task.options)
            for name, task in spec.tasks.items()
        ]

        async def life(resume: bool) -> None:
            async with opened(
                spec.run,
                tasks=tasks,
                model=spec.model,
                out=place,
                housed=housed,
                stages=spec.stages,
                resume=resume,
            ) as training:
                training.on_step = show
                await LOOPS[spec.run.mode](training)

        await lived(life, out=place, resume=resume)
    return last
