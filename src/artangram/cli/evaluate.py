"""`artangram eval`: how good a run's model is at problems that are held out."""

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from msgspec import Struct

from artangram.cli.client import Token, Url, client
from artangram.cli.output import JsonFile, Printer
from artangram.config.train import TrainSpec, check_tasks, made_tasks, read_train
from artangram.core.errors import BadInput, InfraFailed
from artangram.train.checkpoint import checkpoints

if TYPE_CHECKING:
    from artangram.pipeline.evaluation import Evaluation
    from artangram.pipeline.settings import Exam

USUAL_OUT = Path("out")
"""Where `train` puts its checkpoints if nothing is said."""


class Examined(Struct, frozen=True, kw_only=True):
    """What `--json` writes."""

    model: str
    found: Any


def eval(
    file: Annotated[Path, typer.Argument(help="The training run (YAML) whose tasks are used.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Directory where `train` put its checkpoints.", show_default="out"),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the model. Default: the newest checkpoint, or the model that the "
            "run starts from."
        ),
    ] = None,
    problems: Annotated[int, typer.Option(help="Number of problems of each task.", min=1)] = 40,
    at_once: Annotated[int, typer.Option(help="Number of attempts at once.", min=1)] = 64,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed that selects the problems; the same seed gives every model the same ones."
        ),
    ] = 10**9,
    temperature: Annotated[
        float,
        typer.Option(help="Sampling temperature; 0 always takes the likeliest token.", min=0.0),
    ] = 1.0,
    url: Url = None,
    token: Token = None,
    json: JsonFile = None,
) -> None:
    """Measure a model on held-out problems of a run's tasks, one attempt each.

    The tasks that come with Artangram hold problems out. A task of your own is created with the
    options under `eval:`; without them it gets another seed.
    """
    from artangram.pipeline.settings import Exam

    import_module("artangram.pipeline.evaluation")  # What is not installed is named first.
    spec = read_train(file)
    output = Printer(json)
    sys.path.insert(0, str(file.parent.resolve()))
    check_tasks(file, spec, is_exam=True)
    chosen = model or _newest(out, spec, output)
    exam = Exam(problems=problems, seed=seed, at_once=at_once, temperature=temperature)
    try:
        found = asyncio.run(_examined(spec, chosen, exam, output, url=url, token=token))
    except InfraFailed as error:
        raise BadInput(str(file), str(error), "look at what its tasks need") from error
    rows = [
        [task, f"{mean:.3f}", f"{found.errors.get(task, 0.0):.3f}"]
        for task, mean in found.by_task.items()
    ]
    output.table(str(chosen), ["task", "success", "standard error"], rows)
    failed = f"; {found.failed} failed by infrastructure are left out" if found.failed else ""
    output.console.print(f"{found.success:.3f} of {found.problems} problems{failed}")
    output.json(Examined(model=str(chosen), found=found))


def _newest(out: Path | None, spec: TrainSpec, output: Printer) -> Path:
    """The newest checkpoint of a run.

    Without one it is the model that the run starts from, unless `--out` was given: then a wrong
    directory is the likely reason, and the figures of another model would hide it.
    """
    place = (out or USUAL_OUT) / spec.run.name
    found = checkpoints(place / "checkpoints")
    if found:
        return found[-1]
    if out is not None:
        fix = f"name the --out of `train`, or say --model {spec.model} for what it begins with"
        raise BadInput(str(place), "holds no checkpoint", fix)
    output.console.print(
        f"{place} holds no checkpoint: evaluating the model that the run starts from"
    )
    return spec.model


async def _examined(
    spec: TrainSpec,
    model: Path,
    exam: "Exam",
    output: Printer,
    *,
    url: str | None,
    token: str | None,
) -> "Evaluation":
    from artangram.models.loading import load_tokenizer
    from artangram.pipeline.agentserver import agent_gateway
    from artangram.pipeline.evaluation import evaluate, served

    tokenizer = load_tokenizer(model)
    with output.progress() as progress:
        showing = progress.add_task("starting the model")
        async with (
            client(url, token, spec.cluster) as one,
            served(model, spec.engines, log=Path(os.devnull)) as (endpoint, lost),
        ):
            tasks = made_tasks(spec, one, job=f"{spec.run.name}-eval", is_exam=True)
            progress.update(showing, description="evaluating", total=len(tasks) * exam.problems)
            serving = agent_gateway(
                tasks,
                endpoint,
                tokenizer=tokenizer,
                model=spec.run.name,
                client=one,
                address=spec.run.gateway,
            )
            async with serving as agents:
                asking = asyncio.ensure_future(
                    evaluate(
                        tasks,
                        endpoint,
                        exam,
                        tokenizer=tokenizer,
                        name=f"eval-{uuid4().hex[:6]}",
                        agents=agents,
                        on_ended=lambda ended: progress.advance(showing),
                    )
                )
                try:
                    await asyncio.wait({asking, lost}, return_when=asyncio.FIRST_COMPLETED)
                    return await asking if asking.done() else lost.result()
                finally:
                    asking.cancel()
