"""Does `run_in_session` cost less on our runtime than on SWE-ReX's own, with many agents at once?

Claim: 32 agents, each with a session, run at least ten times as many commands a second.

Both run in one process and in turn, round by round, so that other load meets both alike: SWE-ReX's
local deployment, which runs bare on this machine, and ours, each agent in a sandbox of its own.

    python benchmarks/experiments/swerex_sessions.py --agents 32 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import msgspec

import artangram
from artangram_bench.result import Origin

RESULT = Path(__file__).resolve().parents[1] / "results" / "swerex_sessions.json"
COMMAND = "echo 42"


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True):
    agents: int
    commands_each: int
    ours_per_s: tuple[float, ...]
    swerex_per_s: tuple[float, ...]
    """Commands of all agents per second, round by round."""
    ours_ms: float
    swerex_ms: float
    """Of one agent alone, the median."""
    times: float
    """Median of ours over median of theirs, all agents at once."""


async def per_second(runtimes: Sequence[Any], commands: int) -> float:
    action = import_module("swerex.runtime.abstract").BashAction(command=COMMAND, check="silent")

    async def agent(runtime: Any) -> None:
        for _ in range(commands):
            told = await runtime.run_in_session(action)
            assert "42" in told.output, told

    began_at = perf_counter()
    await asyncio.gather(*map(agent, runtimes))
    return len(runtimes) * commands / (perf_counter() - began_at)


async def measured(agents: int, commands: int, rounds: int) -> SessionFigures:
    abstract = import_module("swerex.runtime.abstract")
    local = import_module("swerex.deployment.local").LocalDeployment
    ours_of = import_module("artangram.integrations.swerex").TrajectoryDeployment
    async with artangram.local() as client:
        ours = [ours_of(lambda: client.trajectory(memory_mb=64)) for _ in range(agents)]
        theirs = [local() for _ in range(agents)]
        for one in (*ours, *theirs):
            await one.start()
            await one.runtime.create_session(abstract.CreateBashSessionRequest(startup_timeout=30))
        ours_run, theirs_run = [x.runtime for x in ours], [x.runtime for x in theirs]
        fast, slow, alone, alone_slow = [], [], [], []
        for _ in range(rounds):
            fast.append(await per_second(ours_run, commands))
            slow.append(await per_second(theirs_run, 1))
            alone.append(1000 / await per_second(ours_run[:1], commands))
            alone_slow.append(1000 / await per_second(theirs_run[:1], commands))
        for one in (*ours, *theirs):
            await one.stop()
    return SessionFigures(
        agents=agents,
        commands_each=commands,
        ours_per_s=tuple(round(x, 1) for x in fast),
        swerex_per_s=tuple(round(x, 1) for x in slow),
        ours_ms=round(median(alone), 2),
        swerex_ms=round(median(alone_slow), 2),
        times=round(median(fast) / median(slow), 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--commands", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    origin = Origin()
    figures = asyncio.run(measured(given.agents, given.commands, given.rounds))
    result = origin.result((__doc__ or "").splitlines()[0], figures)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    print(f"{figures.times}x: {figures}")


if __name__ == "__main__":
    main()
