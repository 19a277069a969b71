"""What does the init in C save over the one in Python: time per command, CPU time, memory?

Claim: a command in a warm sandbox returns sooner, and init itself needs a third of the CPU time.

Two providers on one machine, one with each init; `true` runs in turn in a sandbox of either, so
that other load meets both alike. Memory is that of idle sandboxes, as the kernel counts it.

    python benchmarks/experiments/two_inits.py --rounds 1000
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec

from artangram.sandbox import Command, HostImage, NamespaceProvider
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram_bench.result import Origin

COMMAND = Command(argv=("/usr/bin/true",))
RESULT = Path(__file__).resolve().parents[1] / "results" / "two_inits.json"
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class InitFigures(msgspec.Struct, frozen=True, kw_only=True):
    p10_ms: float
    p50_ms: float
    p90_ms: float
    init_cpu_ms: float
    """CPU time of init per command."""
    together_ms: float
    """Per command when all sandboxes run one at once."""
    private_kb: float
    """Memory that an idle sandbox alone has; the median."""


class Measured:
    """One provider and what its commands took."""

    def __init__(self, provider: NamespaceProvider, boxes: list[LocalSandbox]) -> None:
        self.provider = provider
        self.boxes = boxes
        self.took_ms: list[float] = []
        self.together_ms: list[float] = []

    async def run_one(self) -> None:
        began_at = perf_counter()
        await self.boxes[0].run(COMMAND)
        self.took_ms.append(1000 * (perf_counter() - began_at))

    async def run_all(self) -> None:
        began_at = perf_counter()
        await asyncio.gather(*(box.run(COMMAND) for box in self.boxes))
        self.together_ms.append(1000 * (perf_counter() - began_at) / len(self.boxes))

    def figures(self, private_kb: float) -> InitFigures:
        took, rounds = sorted(self.took_ms), len(self.took_ms)
        return InitFigures(
            p10_ms=round(took[rounds // 10], 3),
            p50_ms=round(took[rounds // 2], 3),
            p90_ms=round(took[rounds * 9 // 10], 3),
            init_cpu_ms=round(_cpu_ms(self.boxes[0].pid) / (rounds + len(self.together_ms)), 3),
            together_ms=round(median(self.together_ms), 3),
            private_kb=private_kb,
        )


def _cpu_ms(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) * _TICK_MS


def _private_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


async def measured(state_dir: Path, *, num_boxes: int, rounds: int) -> dict[str, InitFigures]:
    ways: dict[str, Measured] = {}
    for name in ("c", "python"):
        provider = await NamespaceProvider.open(state_dir=state_dir, compiled=name == "c")
        boxes = [await provider.create(HostImage()) for _ in range(num_boxes)]
        ways[name] = Measured(provider, boxes)
    memory = {name: median(map(_private_kb, [b.pid for b in w.boxes])) for name, w in ways.items()}
    for _ in range(rounds):
        for way in ways.values():
            await way.run_one()
    for _ in range(10):
        for way in ways.values():
            await way.run_all()
    found = {name: way.figures(memory[name]) for name, way in ways.items()}
    for way in ways.values():
        await way.provider.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--boxes", type=int, default=50)
    options = parser.parse_args()
    origin = Origin()
    state_dir = Path(tempfile.mkdtemp())
    try:
        found = asyncio.run(measured(state_dir, num_boxes=options.boxes, rounds=options.rounds))
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)
    for name, figures in found.items():
        print(f"{name:7}{figures}")
    result = origin.result("What does the init in C save over the one in Python?", found)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


if __name__ == "__main__":
    main()
