"""`artangram doctor`: what this machine can do, and how to get what it cannot."""

import os
from importlib.util import find_spec
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Output
from artangram.sandbox import extras, probe
from artangram.sandbox.protocol import Feature

_EXTRAS = {
    "simulation and plots": ("sim", ("numpy", "matplotlib")),
    "service": ("service", ("starlette", "uvicorn", "aiohttp")),
    "bench peers": ("peers", ("ray", "distributed")),
}


class Diagnosis(Struct, frozen=True, kw_only=True):
    cores: int
    rung: str
    """The highest rung of the sandbox ladder this machine stands on."""
    features: tuple[Feature, ...]


def doctor(
    json: Annotated[str | None, typer.Option(help="Write it here; - is stdout.")] = None,
) -> None:
    """Say what this machine can do for sandboxes and what is not installed."""
    output = Output(json)
    found = probe()
    features = (*found.features, *extras(), *(_extra(name) for name in _EXTRAS))
    diagnosis = Diagnosis(
        cores=len(os.sched_getaffinity(0)), rung=found.rung.name.lower(), features=features
    )
    output.console.print(
        f"{diagnosis.cores} cores; sandboxes stand on rung {diagnosis.rung}.", soft_wrap=True
    )
    for feature in features:
        mark = "[green]yes[/]" if feature.available else "[red]no [/]"
        output.console.print(f" {mark} {feature.name}: {feature.detail}", soft_wrap=True)
        if not feature.available:
            output.console.print(f"     to get it: {feature.how}", soft_wrap=True)
    output.json(diagnosis)


def _extra(name: str) -> Feature:
    extra, modules = _EXTRAS[name]
    missing = [module for module in modules if find_spec(module) is None]
    return Feature(
        name=name,
        available=not missing,
        detail=f"{', '.join(missing)} not installed" if missing else "installed",
        how=f"pip install 'artangram\\[{extra}]'" if missing else "",
    )
