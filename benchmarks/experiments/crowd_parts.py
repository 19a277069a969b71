"""What do the cores do while several clients run short actions, as fast as they can?

Claim: half of the time they run the programs; most of the rest is the thread that leases
cores, and a core that waits for it.

As many clients as in `bench sandbox`, each with a trajectory of its own, run `true` in a loop. By
the kernel's own accounts: the thread of the event loop, the first processes of the sandboxes, cores
that are idle, and the rest, which is the programs (and whatever else the machine does).

    python benchmarks/experiments/crowd_parts.py --slices 10
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from statistics import median

import msgspec

from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.local import local
from artangram_bench.result import Origin

PROGRAM = "/usr/bin/true"
CLIENTS = 8
SLICE_S = 2.0
RESULT = Path(__file__).resolve().parents[1] / "results" / "crowd_parts.json"

THREAD, INITS, IDLE, REST = "the event loop's thread", "inits", "idle", "programs and the rest"
RATE, ALL = "actions a second", "core-us an action"


def inits() -> list[int]:
    """The first processes of process namespaces other than ours."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            line = next(one for one in status.read_text().splitlines() if one.startswith("NSpid"))
        except (OSError, StopIteration):
            continue  # It ended meanwhile.
        numbers = line.split()[1:]
        if len(numbers) > 1 and numbers[-1] == "1":
            found.append(int(numbers[0]))
    return found


class Accounts:
    """What the kernel has counted so far, in core-seconds."""

    def __init__(self, pids: list[int]) -> None:
        ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        self.idle_s = (ticks[3] + ticks[4]) / os.sysconf("SC_CLK_TCK")
        self.thread_s = time.thread_time()
        ran = [Path(f"/proc/{pid}/schedstat").read_text().split()[0] for pid in pids]
        self.inits_s = sum(map(int, ran)) / 1e9
        self.at = time.perf_counter()


async def runs(trajectory: TrajectoryHandle, *, ends_at: float) -> int:
    count = 0
    while time.perf_counter() < ends_at:
        result = await trajectory.run([PROGRAM])
        assert result.ok, result.reason
        count += 1
    return count


async def one_slice(trajectories: list[TrajectoryHandle], found: dict[str, list[float]]) -> None:
    pids = inits()
    before = Accounts(pids)
    ends_at = before.at + SLICE_S
    counts = await asyncio.gather(*(runs(one, ends_at=ends_at) for one in trajectories))
    after = Accounts(pids)
    total, elapsed_s = sum(counts), after.at - before.at
    all_s = elapsed_s * (os.cpu_count() or 1)
    parts = {
        THREAD: after.thread_s - before.thread_s,
        INITS: after.inits_s - before.inits_s,
        IDLE: after.idle_s - before.idle_s,
    }
    parts[REST] = all_s - sum(parts.values())
    for name, part_s in parts.items():
        found.setdefault(name, []).append(100 * part_s / all_s)
    found.setdefault(ALL, []).append(1e6 * all_s / total)
    found.setdefault(RATE, []).append(total / elapsed_s)


async def measured(slices: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    async with local() as client:
        trajectories = [client.trajectory(memory_mb=64) for _ in range(CLIENTS)]
        for one in trajectories:
            await one.__aenter__()
            await one.run([PROGRAM])
        for _ in range(slices):
            await one_slice(trajectories, found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--json", type=Path, default=RESULT)
    asked = parser.parse_args()
    origin = Origin()
    found = asyncio.run(measured(asked.slices))
    for name, values in found.items():
        unit = "" if name in (RATE, ALL) else " %"
        print(f"{median(values):7.1f}{unit}  {name}")
    question = "What do the cores do while several clients run short actions?"
    result = origin.result(question, {"unit": "% of all cores", "parts": found})
    asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))


if __name__ == "__main__":
    main()
