"""`artangram demo`: a tiny model learns four tasks at once, by real RL, in a few minutes."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from artangram.cli.demo.plan import compare_policies
from artangram.cli.output import JsonFile, Printer, make_folder
from artangram.cli.rundashboard import DashboardPort, NoDashboard, RunDashboard
from artangram.envs.tasks import DEMO_TASKS

STEPS = 150


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the report.")] = Path("out"),
    steps: Annotated[int, typer.Option(help="Number of optimiser steps.", min=1)] = STEPS,
    seed: Annotated[
        int, typer.Option(help="Seed of the model, the problems and the sampling.")
    ] = 0,
    tasks: Annotated[str, typer.Option(help="Tasks to train on, separated by commas.")] = ",".join(
        DEMO_TASKS
    ),
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Train nothing; compare scheduling policies in the simulator."),
    ] = False,
    dashboard: DashboardPort = 0,
    no_dashboard: NoDashboard = False,
    json: JsonFile = None,
) -> None:
    """Train a tiny model with real tools, tests, a judge and a search API, in minutes.

    No GPU, no container engine, no API key. The report is OUT/report.html and OUT/report.txt.
    """
    output = Printer(json)
    if plan:
        compare_policies(out, output)
        return
    from artangram.cli.demo.session import DemoRun

    make_folder(out / "report.html")
    names = tasks.split(",")
    console = output.console
    look = None if no_dashboard else RunDashboard(dashboard)
    session = DemoRun(out, steps=steps, seed=seed, tasks=names, console=console, look=look)
    output.json(asyncio.run(session.run()))
