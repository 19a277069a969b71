"""A measurement with what is needed to judge it: machine, commit, date, question."""

import os
import platform
import subprocess
from datetime import UTC, datetime

from msgspec import Struct, field


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
    commit: str = field(default_factory=lambda: _commit())
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")
    machine: Machine = field(default_factory=lambda: _machine())


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
