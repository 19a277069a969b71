"""Where does the time of one action go, from the caller's request to the caller's result?

Claim: most of it is the program's own; what is ours is spread evenly over Python that is no longer
in the caches.

One action at a time runs `true` in a warm sandbox through the public interface. Other programs run
and pass in between, so caches are as cold as after a turn of a model; a bare `subprocess.run` is
timed in the same rounds. Points on its way are noted by wrapping the functions that it passes;
a wrapper takes about a microsecond of the part it stands in.

    python benchmarks/experiments/action_parts.py --rounds 300
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import msgspec

from artangram.core.scheduling.scheduler import Scheduler
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.local import local
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram_bench.result import Origin

PROGRAM = "/usr/bin/true"
OTHERS = [sys.executable, "-c", "import json, re"]
PAUSE_S = 0.003
RESULT = Path(__file__).resolve().parents[1] / "results" / "action_parts.json"

POINTS = (
    "request: client, checks, submission, a turn of the event loop",
    "scheduler: start",
    "ledger, manager, agent, sandbox: to the message",
    "sending, which may let init run first",
    "init and the program, until the event loop has the reply",
    "reply, result, agent: to the event",
    "scheduler: end and report",
    "ledger, waiter, a turn of the event loop: to the caller",
)
PROGRAM_PART = "of which init saw the program run"


class Notes:
    """When the action under way passed which point."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def before(self, owner: type, name: str) -> None:
        self._wrap(owner, name, is_before=True, is_after=False)

    def around(self, owner: type, name: str) -> None:
        self._wrap(owner, name, is_before=True, is_after=True)

    def _wrap(self, owner: type, name: str, *, is_before: bool, is_after: bool) -> None:
        real: Callable[..., Any] = getattr(owner, name)
        times = self.times

        def noted(*args: Any, **kwargs: Any) -> Any:
            if is_before:
                times.append(perf_counter())
            found = real(*args, **kwargs)
            if is_after:
                times.append(perf_counter())
            return found

        setattr(owner, name, noted)


async def one_action(trajectory: TrajectoryHandle, notes: Notes) -> tuple[list[float], float]:
    """Microseconds of each part, and of the program by init's clock."""
    notes.times.clear()
    began_at = perf_counter()
    result = await trajectory.run([PROGRAM])
    ended_at = perf_counter()
    assert result.command is not None, result.reason
    times = [began_at, *notes.times, ended_at]
    assert len(times) == len(POINTS) + 1, f"{len(times)} points: the way has changed"
    parts = [1e6 * (after - before) for before, after in pairwise(times)]
    return parts, 1e6 * result.command.run_s


def bare() -> float:
    began_at = perf_counter()
    subprocess.run([PROGRAM], capture_output=True, check=True)
    return 1e6 * (perf_counter() - began_at)


async def measured(rounds: int) -> dict[str, list[float]]:
    notes = Notes()
    notes.around(Scheduler, "handle_all")
    notes.around(LocalSandbox, "send")
    notes.before(LocalSandbox, "_on_readable")
    found: dict[str, list[float]] = {name: [] for name in (*POINTS, PROGRAM_PART, "all", "bare")}
    chance = random.Random(0)
    async with local() as client, client.trajectory(memory_mb=64) as trajectory:
        for _ in range(3):
            await trajectory.run([PROGRAM])
        for _ in range(rounds):
            for what in chance.sample(["ours", "bare"], 2):
                await asyncio.to_thread(subprocess.run, OTHERS, check=True)
                await asyncio.sleep(PAUSE_S)
                if what == "bare":
                    found["bare"].append(bare())
                    continue
                parts, program = await one_action(trajectory, notes)
                for name, took in zip(POINTS, parts, strict=True):
                    found[name].append(took)
                found[PROGRAM_PART].append(program)
                found["all"].append(sum(parts))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", type=Path, default=RESULT)
    asked = parser.parse_args()
    origin = Origin()
    found = asyncio.run(measured(asked.rounds))
    for name, times in found.items():
        low, _, high = quantiles(times, n=4)
        print(f"{median(times):7.0f} us ({low:.0f} to {high:.0f})  {name}")
    result = origin.result("Where does the time of one action go?", {"unit": "us", "parts": found})
    asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))


if __name__ == "__main__":
    main()
