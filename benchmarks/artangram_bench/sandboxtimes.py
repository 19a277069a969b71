"""How fast sandboxes are here, next to a bare `subprocess.run`, all samples kept.

- What is compared is interleaved in one run, in random order per round: on a shared machine
  only ratios within a round mean anything.
- Nothing is filtered: percentiles are over all samples.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import platform
import random
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from artangram.sandbox.namespace.kernel import processes_below
from artangram.sandbox.namespace.provider import NamespaceProvider
from artangram.sandbox.namespace.sandbox import LocalSandbox
from artangram.sandbox.protocol import Command, HostImage, Snapshot
from artangram.sandbox.warm import Warm

PROGRAM = "/usr/bin/true"
PAUSE_S = 0.003
CREATING_AT_ONCE = 4
MOST_SLEEPERS = 500
"""Enough to tell what each holds from what the machine does meanwhile."""
SLEEPER_BYTES = 10_000
GROW_PHASE_S = 0.4
GROW_GIVES_UP_S = 0.5
COUNTERS = """
import mmap, os, struct
fd = os.open("/work/counts", os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 16)
shared = mmap.mmap(fd, 16)
me = 8 if os.fork() else 0
n = 0
while True:
    for _ in range(2000):
        n += 1
    struct.pack_into("q", shared, me, n)
"""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Every sample of one measured thing, in the order taken."""

    name: str
    unit: str
    samples: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class SandboxBench(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the benchmark. `load` is the machine's load average before and after."""

    machine: str
    num_cores: int
    load: tuple[float, float]
    series: tuple[Series, ...]

    def __getitem__(self, name: str) -> Series:
        return next(series for series in self.series if series.name == name)

    def ratio(self, name: str, other: str, *, percent: float = 50) -> float:
        return self[name].percentile(percent) / self[other].percentile(percent)


class _Book:
    """Collects samples by name."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[float]] = {}

    def add(self, name: str, value: float, *, unit: str = "ms") -> None:
        self._samples.setdefault((name, unit), []).append(value)

    async def time(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        began_at = time.perf_counter()
        await work()
        self.add(name, (time.perf_counter() - began_at) * 1000)

    def series(self) -> tuple[Series, ...]:
        return tuple(
            Series(name=name, unit=unit, samples=tuple(samples))
            for (name, unit), samples in self._samples.items()
        )


async def measure(
    *, rounds: int = 100, live: tuple[int, ...] = (10, 100), grows: int = 10, seed: int = 0
) -> SandboxBench:
    """Run everything. `live` are numbers of sandboxes alive while commands run in them."""
    book = _Book()
    rng = random.Random(seed)
    load_before = os.getloadavg()[0]
    provider = await NamespaceProvider.open()
    try:
        await _interleaved(provider, book, rounds=rounds, rng=rng)
        await _crowd(provider, book, live=live, rounds=rounds, rng=rng)
        if len(os.sched_getaffinity(0)) > 1:
            await _grow(provider, book, grows=grows)
    finally:
        await provider.close()
    return SandboxBench(
        machine=f"{platform.system()} {platform.release()} {platform.machine()}",
        num_cores=len(os.sched_getaffinity(0)),
        load=(load_before, os.getloadavg()[0]),
        series=book.series(),
    )


async def _interleaved(
    provider: NamespaceProvider, book: _Book, *, rounds: int, rng: random.Random
) -> None:
    """Bare process, command without and with a core of its own, claim and create, mixed."""
    box = await provider.create(HostImage())
    warm = Warm(provider, HostImage(), size=2)
    await warm.fill()
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    plain = Command(argv=(PROGRAM,))

    async def bare() -> None:
        subprocess.run([PROGRAM], capture_output=True, check=True)  # noqa: ASYNC221 - measured

    async def leased() -> None:
        await box.run(Command(argv=(PROGRAM,), cores=(next(cores),)))

    contenders: dict[str, Callable[[], Awaitable[object]]] = {
        "bare subprocess.run": bare,
        "exec": lambda: box.run(plain),
        "exec with a core": leased,
    }
    for _ in range(rounds):
        for name in rng.sample(sorted(contenders), len(contenders)):
            await book.time(name, contenders[name])
            await asyncio.sleep(PAUSE_S)
        if rng.random() < 0.3:
            await _lifetime(provider, warm, book)
    await warm.close()
    await box.close()


async def _lifetime(provider: NamespaceProvider, warm: Warm, book: _Book) -> None:
    made: list[LocalSandbox] = []

    async def create() -> None:
        made.append(await provider.create(HostImage()))

    await book.time("create", create)
    await book.time("close", made[0].close)
    began_at = time.perf_counter()
    claimed = await warm.claim()
    book.add("claim", (time.perf_counter() - began_at) * 1000)
    await claimed.close()
    await warm.fill()


async def _crowd(
    provider: NamespaceProvider,
    book: _Book,
    *,
    live: tuple[int, ...],
    rounds: int,
    rng: random.Random,
) -> None:
    """Commands in random sandboxes while ever more of them are alive; then some hibernate."""
    boxes: list[LocalSandbox] = []
    used: set[LocalSandbox] = set()
    free_before = _available_mb()
    for count in sorted(live):
        while len(boxes) < count:
            some = min(CREATING_AT_ONCE, count - len(boxes))
            began_at = time.perf_counter()
            boxes += await asyncio.gather(*(provider.create(HostImage()) for _ in range(some)))
            book.add(f"create up to {count}", (time.perf_counter() - began_at) * 1000 / some)
        book.add(f"memory per sandbox at {count}", _mb_each(count, free_before), unit="MiB")
        chosen = rng.choices(boxes, k=rounds)
        await _exec_in(chosen, book, count=count, used=used)
        await _lend_to(chosen, provider, book, count=count)
    sleepers = boxes[:MOST_SLEEPERS]
    snapshots = [await _put_to_sleep(box, book) for box in sleepers]
    await _close_all(boxes[len(sleepers) :], book)
    each = _mb_each(len(snapshots), free_before)
    book.add("memory per sleeping sandbox", each, unit="MiB")
    for snapshot in snapshots:
        await provider.forget(snapshot)


async def _exec_in(
    boxes: list[LocalSandbox], book: _Book, *, count: int, used: set[LocalSandbox]
) -> None:
    for box, core in zip(boxes, itertools.cycle(sorted(os.sched_getaffinity(0))), strict=False):
        command = functools.partial(box.run, Command(argv=(PROGRAM,), cores=(core,)))
        # The first command of a sandbox also copies the memory it shared with the zygote.
        if box not in used:
            await book.time(f"first exec at {count}", command)
            used.add(box)
        await book.time(f"exec with a core at {count}", command)
        await book.time(f"bare subprocess.run at {count}", _bare)


async def _lend_to(
    boxes: list[LocalSandbox], provider: NamespaceProvider, book: _Book, *, count: int
) -> None:
    """A lease on one core that changes to all of them."""
    cores = tuple(sorted(os.sched_getaffinity(0)))

    async def lease(box: LocalSandbox) -> None:
        hold = provider.cores.lend(box.traits.groups, box.pid, cores=cores[:1])
        hold.resize(cores)
        hold.resize(cores[:1])
        hold.release()

    for box in boxes:
        await book.time(f"lease at {count}", functools.partial(lease, box))


async def _put_to_sleep(box: LocalSandbox, book: _Book) -> Snapshot:
    """As a node agent does when memory is short."""
    await box.write("notes", bytes(SLEEPER_BYTES))
    began_at = time.perf_counter()
    snapshot = await box.snapshot()
    await box.close()
    book.add("put to sleep", (time.perf_counter() - began_at) * 1000)
    return snapshot


async def _close_all(boxes: list[LocalSandbox], book: _Book) -> None:
    while boxes:
        ending, boxes = boxes[:CREATING_AT_ONCE], boxes[CREATING_AT_ONCE:]
        began_at = time.perf_counter()
        await asyncio.gather(*(box.close() for box in ending))
        book.add("close one of many", (time.perf_counter() - began_at) * 1000 / len(ending))


async def _bare() -> None:
    subprocess.run([PROGRAM], capture_output=True, check=True)  # noqa: ASYNC221 - measured


def _available_mb() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    raise OSError("no MemAvailable")


def _mb_each(count: int, free_before: float) -> float:
    return (free_before - _available_mb()) / count


async def _grow(provider: NamespaceProvider, book: _Book, *, grows: int) -> None:
    """Two busy processes on one core, then on two: when the second is used, and what it gives."""
    one, two = sorted(os.sched_getaffinity(0))[:2]
    box = await provider.create(HostImage())
    argv = ("python3", "-I", "-S", "-c", COUNTERS)
    running = asyncio.create_task(box.run(Command(argv=argv, cores=(one,), timeout_s=600)))
    await asyncio.sleep(GROW_PHASE_S)
    for _ in range(grows):
        before = await _counts_per_s(box)
        await book.time("resize", lambda: box.resize((one, two)))
        book.add("grow until the new core is used", await _until_used(box))
        after = await _counts_per_s(box)
        book.add("throughput of two cores over one", after / before, unit="x")
        await box.resize((one,))
        await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.wait({running})
    await box.close()


async def _until_used(box: LocalSandbox) -> float:
    began_at = time.perf_counter()
    while time.perf_counter() - began_at < GROW_GIVES_UP_S:
        if len({_last_core(pid) for pid in processes_below(box.pid)[1:]}) > 1:
            break
        await asyncio.sleep(0)
    return (time.perf_counter() - began_at) * 1000


def _last_core(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[36])


async def _counts_per_s(box: LocalSandbox) -> float:
    first, began_at = await _count(box)
    await asyncio.sleep(GROW_PHASE_S)
    last, ended_at = await _count(box)
    return (last - first) / (ended_at - began_at)


async def _count(box: LocalSandbox) -> tuple[int, float]:
    data = await box.read("counts")
    return sum(struct.unpack("2q", data)), time.perf_counter()
