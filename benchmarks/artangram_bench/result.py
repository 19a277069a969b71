"""A measurement with what is needed to judge it: machine, commit, date, question."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

import artangram
from artangram.core.errors import BadInput

PACKAGE = Path(artangram.__file__).resolve().parent

PROCESSES = os.cpu_count() or 1
"""Simulations that run at once, if not said otherwise."""


class Machine(Struct, frozen=True, kw_only=True):
    cores: int
    python: str
    system: str
    load: float
    """The one-minute load average when the run began: these machines are shared."""


class Result(Struct, frozen=True, kw_only=True):
    """What `--json` of a bench verb writes."""

    question: str
    figures: object
    commit: str
    date: str
    machine: Machine


class Origin:
    """Where and when a measurement began, and of which commit; made before anything is measured."""

    def __init__(self) -> None:
        self.commit = commit_of(PACKAGE)
        self._date = f"{datetime.now(UTC):%Y-%m-%d}"
        self._machine = _machine()

    def result(self, question: str, figures: object) -> Result:
        return Result(
            question=question,
            figures=figures,
            commit=self.commit,
            date=self._date,
            machine=self._machine,
        )


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds written as 1,2,3; one below zero would be that above."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise BadInput("seeds", f"{text!r} are not seeds", "write them as 1,2,3")
    return tuple(map(int, parts))


def _machine() -> Machine:
    return Machine(
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        load=round(os.getloadavg()[0], 2),
    )


def commit_of(package: Path) -> str:
    """The commit measured; `+` when the package differs from it, whatever became of the rest."""
    try:
        head = _git(package, "rev-parse", "--short", "HEAD")
        changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
