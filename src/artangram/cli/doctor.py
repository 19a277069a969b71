"""`artangram doctor`: what this machine can do, and how to get what it cannot."""

import os
from typing import Annotated

import typer
from msgspec import Struct
from rich.text import Text

from artangram.cli.client import Token, Url
from artangram.cli.extras import install, missing_of
from artangram.cli.output import JsonFile, Printer
from artangram.sandbox.capabilities import Feature, IsolationLevel
from artangram.sandbox.probe import extras, probe
from artangram.services.cuda import devices_outlook

_PARTS = {
    "simulation and plots": "sim",
    "service": "service",
    "training": "train",
    "similarity judge": "judge",
    "models of Hugging Face": "huggingface",
    "bench peers": "peers",
}
"""What each extra is for."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    cores: int
    level: str
    """The strongest isolation that sandboxes get on this machine."""
    features: tuple[Feature, ...]


def doctor(
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Examine every node of a running service instead.")
    ] = False,
    url: Url = None,
    token: Token = None,
    json: JsonFile = None,
) -> None:
    """Check what this machine offers for sandboxes and services, and what is not installed.

    With --cluster: versions, clock, limits, memory, disks and link of every node of the service at
    --url, what is wrong, and what to do. Exits with 1 if something is wrong.
    """
    output = Printer(json)
    if cluster:
        from artangram.cli.clusterdoctor import examine  # Needs more than this machine may have.

        if not examine(output, url, token):
            raise typer.Exit(1)
        return
    _examine_machine(output)


def _examine_machine(output: Printer) -> None:
    found = probe()
    parts = (_part(name) for name in _PARTS)
    features = (*found.features, *extras(), devices_outlook(), *parts)
    diagnosis = Diagnosis(
        cores=len(os.sched_getaffinity(0)), level=found.level.name.lower(), features=features
    )
    output.console.print(
        f"{diagnosis.cores} cores; isolation level {diagnosis.level}, {found.level + 1} of "
        f"{len(IsolationLevel)} (docs/sandbox.md describes each).",
        soft_wrap=True,
    )
    for feature in features:
        mark = Text("yes", style="green") if feature.available else Text("no ", style="red")
        detail = f": {feature.detail}" if feature.detail else ""
        output.console.print(Text.assemble(" ", mark, f" {feature.name}{detail}"), soft_wrap=True)
        if not feature.available:
            output.console.print(f"     to get it: {feature.how}", soft_wrap=True)
    output.json(diagnosis)


def _part(name: str) -> Feature:
    missing = missing_of(_PARTS[name])
    return Feature(
        name=name,
        available=not missing,
        detail=f"{', '.join(missing)} not installed" if missing else "installed",
        how=install(_PARTS[name]) if missing else "",
    )
