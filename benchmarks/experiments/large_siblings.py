"""What does a sandbox with 3 GB of files cost, a second process, a command of a shell that stays?

Claims: making a sandbox from a directory or a snapshot of 3 GB takes at most 1.2 times as long as
making an empty one; 100 siblings that read the same files take at most twice the memory of one;
starting a second process beside a first takes at most twice as long; a command in a shell that
stays takes at most 1.5 times as long as one by itself.

Everything that is compared is measured in turn, in random order per round, so that other load
meets both alike. Memory is what the kernel counts for the sandboxes' control groups, files that it
keeps in memory for them included.

    python benchmarks/experiments/large_siblings.py --rounds 60
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec

from artangram import TrajectoryHandle
from artangram.orchestrator.local import local
from artangram.sandbox import Command, DirectoryImage, HostImage, Limits, NamespaceProvider
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.protocol import Source
from artangram_bench.result import Origin

RESULT = Path(__file__).resolve().parents[1] / "results" / "large_siblings.json"
MB = 1 << 20
ROOMY = Limits(memory_mb=1024, disk_mb=4096, inodes=65536, storage="disk")
PROGRAM = "/usr/bin/true"
SIBLINGS = 100


class SiblingGoal(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    at_most: float
    ratio: float
    """Of the medians."""
    samples: dict[str, list[float]]
    """Milliseconds, or MB."""


async def in_turn(
    ways: dict[str, Callable[[], Awaitable[float]]], rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of each way, which says itself what it measured."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    rng = random.Random(0)
    for _ in range(rounds):
        for name in rng.sample(sorted(ways), len(ways)):
            samples[name].append(round(await ways[name](), 3))
    return samples


def goal(
    what: str, samples: dict[str, list[float]], above: str, below: str, *, at_most: float
) -> SiblingGoal:
    ratio = median(samples[above]) / median(samples[below])
    kept = {name: samples[name] for name in (above, below)}
    return SiblingGoal(what=what, at_most=at_most, ratio=round(ratio, 3), samples=kept)


def filled(directory: Path, size_mb: int) -> None:
    """Files of a megabyte that no disk can make smaller."""
    directory.mkdir(parents=True)
    for number in range(size_mb):
        (directory / f"{number}").write_bytes(os.urandom(MB))


async def created(provider: NamespaceProvider, source: Source) -> float:
    began_at = perf_counter()
    sandbox = await provider.create(source)
    took_ms = 1000 * (perf_counter() - began_at)
    await sandbox.close()
    return took_ms


async def create_goals(
    provider: NamespaceProvider, root: Path, *, size_mb: int, rounds: int
) -> tuple[list[SiblingGoal], Source]:
    await asyncio.to_thread(filled, root / "large" / "data", size_mb)
    (root / "empty").mkdir()
    first = await provider.create(HostImage(also=(str(root / "large"),)), limits=ROOMY)
    copy = f"mkdir /work/data && cp {root}/large/data/* /work/data/"
    result = await first.run(Command(argv=("sh", "-c", copy), timeout_s=500))
    assert result.ok, result.stderr
    large = await first.snapshot()
    await first.close()
    second = await provider.create(HostImage(also=(str(root / "large"),)))
    empty = await second.snapshot()
    await second.close()
    sources: dict[str, Source] = {
        "empty directory": DirectoryImage(path=str(root / "empty")),
        "large directory": DirectoryImage(path=str(root / "large")),
        "empty snapshot": empty,
        "large snapshot": large,
    }
    samples = await in_turn(
        {name: partial(created, provider, source) for name, source in sources.items()}, rounds
    )
    goals = [
        goal(
            f"creating a sandbox from a {kind} of {size_mb} MB / from an empty one",
            samples,
            f"large {kind}",
            f"empty {kind}",
            at_most=1.2,
        )
        for kind in ("directory", "snapshot")
    ]
    return goals, large


def held_mb(sandboxes: list[LocalSandbox]) -> float:
    """What the kernel counts for their groups."""
    total = 0
    for sandbox in sandboxes:
        assert sandbox.traits.groups is not None
        usage = Path(sandbox.traits.groups.peak_file).parent
        files = (usage / "memory.usage_in_bytes", usage / "memory.current")
        total += next(int(file.read_text()) for file in files if file.exists())
    return round(total / MB, 1)


def out_of_memory(tree: Path) -> None:
    """The kernel keeps none of these files in memory, so the next reader is charged for them."""
    os.sync()
    for path in tree.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def memory_goal(provider: NamespaceProvider, large: Source, *, read_mb: int) -> SiblingGoal:
    read = f"cd data && cat $(seq 0 {read_mb - 1}) | wc -c"
    siblings: list[LocalSandbox] = []
    held: list[float] = []
    for count in (1, SIBLINGS):
        while len(siblings) < count:
            sibling = await provider.create(large, limits=Limits(memory_mb=1024))
            siblings.append(sibling)
            if len(siblings) == 1:
                await asyncio.to_thread(out_of_memory, Path(sibling.traits.layers[0]))
            result = await sibling.run(Command(argv=("sh", "-c", read), timeout_s=300))
            assert result.stdout == b"%d\n" % (read_mb * MB), result
        held.append(held_mb(siblings))
    for sibling in siblings:
        await sibling.close()
    what = f"memory of {SIBLINGS} siblings that each read {read_mb} MB of the snapshot / of one"
    samples = {"one": held[:1], "siblings": held[1:]}
    return goal(what, samples, "siblings", "one", at_most=2.0)


async def process_goal(t: TrajectoryHandle, rounds: int) -> SiblingGoal:
    samples: dict[str, list[float]] = {"first": [], "second": []}
    for _ in range(rounds):
        started = []
        for name in ("first", "second"):
            began_at = perf_counter()
            started.append(await t.start(["sleep", "1000"]))
            samples[name].append(round(1000 * (perf_counter() - began_at), 3))
        for process in started:
            await process.kill()
            await process.wait()
    what = "starting a second process while one runs / starting the first"
    return goal(what, samples, "second", "first", at_most=2.0)


async def shell_goal(t: TrajectoryHandle, rounds: int) -> SiblingGoal:
    async with await t.shell() as shell:

        async def plain() -> float:
            began_at = perf_counter()
            assert (await t.run([PROGRAM])).ok
            return 1000 * (perf_counter() - began_at)

        async def in_shell() -> float:
            began_at = perf_counter()
            assert (await shell.run(PROGRAM)).exit_code == 0
            return 1000 * (perf_counter() - began_at)

        samples = await in_turn({"plain": plain, "shell": in_shell}, rounds)
    what = "a command in a shell that stays / a command by itself"
    return goal(what, samples, "shell", "plain", at_most=1.5)


async def measured(root: Path, *, size_mb: int, read_mb: int, rounds: int) -> list[SiblingGoal]:
    provider = await NamespaceProvider.open(state_dir=root / "state", keep_for="bench")
    try:
        goals, large = await create_goals(provider, root / "files", size_mb=size_mb, rounds=rounds)
        goals.append(await memory_goal(provider, large, read_mb=read_mb))
    finally:
        await provider.close()
    async with local() as client, client.trajectory(memory_mb=256) as t:
        await t.run([PROGRAM])
        goals.append(await process_goal(t, rounds))
        goals.append(await shell_goal(t, 2 * rounds))
    return goals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--size-mb", type=int, default=3072)
    parser.add_argument("--read-mb", type=int, default=512)
    options = parser.parse_args()
    origin = Origin()
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    try:
        goals = asyncio.run(measured(root, **vars(options)))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    for one in goals:
        middle = {name: round(median(samples), 2) for name, samples in one.samples.items()}
        print(f"{one.what}: {one.ratio:.2f} (at most {one.at_most}), medians {middle}")
    question = "What do large files, a second process and a shell that stays cost?"
    result = origin.result(question, goals)
    RESULT.write_bytes(msgspec.json.encode(result) + b"\n")


if __name__ == "__main__":
    main()
