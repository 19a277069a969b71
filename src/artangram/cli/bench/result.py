"""A measurement with what is needed to judge it: machine, commit, date, question."""

import os
import platform
import subprocess
from datetime import UTC, datetime

from msgspec import Struct

from artangram.core.errors import BadInput


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
        self.commit = _commit()
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


def _commit() -> str:
    """The commit measured; `+` when the tree differs from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
