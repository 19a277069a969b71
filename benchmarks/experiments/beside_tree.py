"""Is a command in a sandbox as fast, and a sandbox as small, as in an earlier tree?

Claim: the time of a command and the memory of an idle sandbox are within 5 % of those of the tree
that is named.

Both trees run in turn in processes of their own, slice by slice in random order, so that other
load meets both alike. Memory is what the kernel counts for the control groups of idle sandboxes.

    python benchmarks/experiments/beside_tree.py --commit d70a0b8
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec

from artangram.sandbox import Command, HostImage, NamespaceProvider

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "beside_tree.json"
COMMAND = Command(argv=("/usr/bin/true",))
PAUSE_S = 0.003
WITHIN = 0.05


class TreeFigures(msgspec.Struct, frozen=True, kw_only=True):
    commit: str
    """The tree before."""
    exec_ratio: float
    """Median time of a command, now over before."""
    memory_ratio: float
    """Median memory of an idle sandbox, now over before."""
    exec_ms: dict[str, list[float]]
    """The median of each slice."""
    memory_kb: dict[str, list[float]]


async def worked(state_dir: Path, *, commands: int, boxes: int) -> dict[str, float]:
    """One slice, in the tree that this process imports."""
    provider = await NamespaceProvider.open(state_dir=state_dir)
    made = [await provider.create(HostImage()) for _ in range(boxes)]
    for box in made:
        await box.run(COMMAND)
    took_ms = []
    for _ in range(commands):
        began_at = time.perf_counter()
        await made[0].run(COMMAND)
        took_ms.append(1000 * (time.perf_counter() - began_at))
        await asyncio.sleep(PAUSE_S)
    held_kb = []
    for box in made:
        assert box.traits.groups is not None
        group = Path(box.traits.groups.peak_file).parent
        files = (group / "memory.usage_in_bytes", group / "memory.current")
        held_kb.append(next(int(file.read_text()) for file in files if file.exists()) / 1024)
    await provider.close()
    return {"exec_ms": median(took_ms), "memory_kb": median(held_kb)}


def slice_of(source: Path, state_dir: Path, options: argparse.Namespace) -> dict[str, float]:
    sizes = [f"--commands={options.commands}", f"--boxes={options.boxes}"]
    argv = [sys.executable, __file__, "--work-in", str(state_dir), *sizes]
    environ = os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compared(options: argparse.Namespace, root: Path) -> TreeFigures:
    archive = ["git", "-C", str(ROOT), "archive", f"{options.commit}:src"]
    packed = subprocess.run(archive, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(root / "before", filter="data")
    trees = {"now": ROOT / "src", "before": root / "before"}
    found: dict[str, dict[str, list[float]]] = {
        figure: {name: [] for name in trees} for figure in ("exec_ms", "memory_kb")
    }
    rng = random.Random(0)
    for _ in range(options.slices):
        for name in rng.sample(sorted(trees), len(trees)):
            for figure, value in slice_of(trees[name], root / f"{name}-state", options).items():
                found[figure][name].append(round(value, 3))
    ratios = {
        figure: round(median(two["now"]) / median(two["before"]), 3)
        for figure, two in found.items()
    }
    return TreeFigures(
        commit=options.commit,
        exec_ratio=ratios["exec_ms"],
        memory_ratio=ratios["memory_kb"],
        exec_ms=found["exec_ms"],
        memory_kb=found["memory_kb"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default="d70a0b8")
    parser.add_argument("--slices", type=int, default=12)
    parser.add_argument("--commands", type=int, default=150)
    parser.add_argument("--boxes", type=int, default=50)
    parser.add_argument("--work-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work_in is not None:
        sizes = {"commands": options.commands, "boxes": options.boxes}
        print(json.dumps(asyncio.run(worked(options.work_in, **sizes))))
        return
    from artangram_bench.result import Origin  # An earlier tree has not all that it needs.

    origin = Origin()
    with tempfile.TemporaryDirectory() as root:
        figures = compared(options, Path(root))
    print(f"exec {figures.exec_ratio:.3f}, memory {figures.memory_ratio:.3f} of {figures.commit}")
    result = origin.result("Is a sandbox as fast and as small as in an earlier tree?", figures)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


if __name__ == "__main__":
    main()
