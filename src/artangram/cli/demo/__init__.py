"""`artangram demo`: a tiny model learns four tasks at once, by real RL, in a few minutes."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from artangram.cli.demo.plan import compare_policies
from artangram.cli.output import Printer, make_folder
from artangram.envs.tasks import DEMO_TASKS

STEPS = 150


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("out"),
    steps: Annotated[int, typer.Option(help="Of the optimiser.", min=1)] = STEPS,
    seed: Annotated[int, typer.Option(help="Of model, problems and sampling.")] = 0,
    tasks: Annotated[str, typer.Option(help="Which of the tasks, with commas between.")] = ",".join(
        DEMO_TASKS
    ),
    plan: Annotated[
        bool, typer.Option("--plan", help="Compare scheduling policies in the simulator instead.")
    ] = False,
    json: Annotated[
        str | None, typer.Option(help="Write what was found here; - is stdout.")
    ] = None,
) -> None:
    """Train a tiny model on tools, tests, a judge and a search API, all of them real.

    No GPU, no container engine, no API key. The report is OUT/report.html and OUT/report.txt.
    """
    output = Printer(json)
    if plan:
        compare_policies(out, output)
        return
    from artangram.cli.demo.session import DemoRun

    make_folder(out / "report.html")
    names = tasks.split(",")
    session = DemoRun(out, steps=steps, seed=seed, tasks=names, console=output.console)
    output.json(asyncio.run(session.run()))
