"""Does every action end exactly once when `kill -9` hits the service at any moment?

- A real `artangram up` with real sandboxes, and callers over HTTP that ask again by their keys.
- A round kills one of: the orchestrator, its agent, both at once, or an orchestrator that is still
  starting. Whatever was killed is started again with the same state directory.
- In the first half of the rounds no agent is killed, and then no action may fail.
- Every key has one answer, the same one when it is asked for again. The journal reports each
  action once and starts none twice that must not be repeated. In the end nothing is left.
"""

import asyncio
import json as jsonlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.scheduling.decisions import Report, Start
from artangram.observe.recording import recorded
from artangram.orchestrator.connect import connect
from artangram.orchestrator.records import ClusterStatus, Unreachable
from artangram_bench.result import Origin
from artangram_bench.soakload import Load

TOKEN = "callers-token"
NODE = "cpu-0"
PATIENCE_S = 120.0
"""Until a service has surely started, on a busy machine, too."""
_VERB = "from artangram.cli import main; main()"


class Victim(StrEnum):
    ORCHESTRATOR = "orchestrator"
    STARTING = "orchestrator while starting"
    AGENT = "agent"
    BOTH = "orchestrator and agent"


class KillFigures(Struct, frozen=True, kw_only=True):
    """What was found."""

    rounds: dict[str, int]
    seed: int
    took_s: float
    actions: int
    outcomes: dict[str, int]
    unreachable: int
    """Requests that got no answer, and were made again."""
    start_s: list[float]
    """From the start of the program until it served."""
    state_mb: float
    """What the state directory had in the end."""
    violations: list[str]

    @property
    def is_sound(self) -> bool:
        return not self.violations and sum(self.outcomes.values()) == self.actions


def kill(
    rounds: Annotated[int, typer.Option(help="How often something is killed.", min=1)] = 200,
    callers: Annotated[int, typer.Option(help="Trajectories at once.", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="Of the moments and the actions.", min=0)] = 1,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Kill a real service again and again; exit code 1 if anything accepted is lost or repeated."""
    output, origin = Printer(json), Origin()
    with output.progress() as progress, TemporaryDirectory(prefix="artangram-kill-") as folder:
        progress.add_task(f"{rounds} rounds of kill -9")
        found = asyncio.run(killed(Path(folder), rounds=rounds, callers=callers, seed=seed))
    _print(output, found)
    output.json(origin.result("Does every action end exactly once under kill -9?", found))
    if not found.is_sound:
        raise typer.Exit(1)


class Service:
    """`artangram up`, started as often as it is killed, always at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.state_dir = folder / "state"
        self._told = folder / "serves.json"
        self._port = "0"
        self.url = ""
        self.start_s: list[float] = []
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it, and do not wait until it serves."""
        self._told.unlink(missing_ok=True)
        words = ["up", "--state-dir", str(self.state_dir), "--cores", "2", "--port", self._port]
        argv = [sys.executable, "-c", _VERB, *words, "--json", str(self._told)]
        with (self._folder / "up.log").open("ab") as log:
            environ = {**os.environ, "ARTANGRAM_TOKEN": TOKEN}
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, env=environ)

    def start(self) -> None:
        """Return when it serves."""
        began_at = time.monotonic()
        self.begin()
        while not (self._told.exists() and self._told.read_text().endswith("}\n")):
            is_gone = self._process is None or self._process.poll() is not None
            if is_gone or time.monotonic() > began_at + PATIENCE_S:
                raise RuntimeError((self._folder / "up.log").read_text()[-4000:])
            time.sleep(0.01)
        self.start_s.append(time.monotonic() - began_at)
        self.url = jsonlib.loads(self._told.read_text())["url"]
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill_agent(self) -> None:
        for pid in self.agents():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def agents(self) -> list[int]:
        """The processes that have the socket of its agent in their arguments."""
        return list(_with_argument(str(self.state_dir / "agent.sock")))

    def end(self) -> list[str]:
        """End it as a supervisor does; what is wrong with that."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(PATIENCE_S)
        left = self.agents()
        return [f"it ended with {code}"] * (code != 0) + [f"agent {pid} is left" for pid in left]


def _with_argument(word: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and word in (entry / "cmdline").read_text().split("\0"):
                yield int(entry.name)


async def killed(folder: Path, *, rounds: int, callers: int, seed: int) -> KillFigures:
    """Run `rounds` against a service with its state in `folder`."""
    rng, service, began_at = Random(seed), Service(folder), time.monotonic()
    await asyncio.to_thread(service.start)
    gentle = list(islice(cycle([Victim.ORCHESTRATOR, Victim.STARTING]), (rounds + 1) // 2))
    rough = list(islice(cycle([Victim.AGENT, Victim.BOTH, Victim.STARTING]), rounds // 2))
    done: Counter[str] = Counter()
    is_over = False
    async with connect(service.url, token=TOKEN) as client:
        load = Load(
            client,
            is_over=lambda count: is_over,
            rng=Random(rng.random()),
            host_of=lambda number: NODE,
            may_fail=lambda host, at: host == NODE and bool(done[Victim.AGENT]),
        )
        running = asyncio.create_task(load.run(callers))
        try:
            for victim in (*gentle, *rough):
                await asyncio.sleep(rng.uniform(0.1, 1.5))
                done[victim] += 1  # Before it is hit: what fails from now on may.
                await asyncio.to_thread(_hit, service, victim, rng)
                if running.done():
                    break
        finally:
            is_over = True
            await running
        await load.ask_again()
        left = await _left_over(client.status)
    ended = await asyncio.to_thread(service.end)
    outcomes = Counter(str(a.result.outcome) for a in load.actions if a.result is not None)
    repeatable = {f"{a.result.action_id}": a.repeatable for a in load.actions if a.result}
    written = await asyncio.to_thread(_wrong_in_journal, service.state_dir, repeatable)
    return KillFigures(
        rounds=dict(done),
        seed=seed,
        took_s=time.monotonic() - began_at,
        actions=len(load.actions),
        outcomes=dict(outcomes),
        unreachable=load.num_unreachable,
        start_s=[round(took_s, 2) for took_s in service.start_s],
        state_mb=round(await asyncio.to_thread(_size_mb, service.state_dir), 2),
        violations=[*load.violations, *left, *ended, *written],
    )


def _hit(service: Service, victim: Victim, rng: Random) -> None:
    """Kill `victim`, and start what does not start by itself."""
    match victim:
        case Victim.AGENT:
            service.kill_agent()
            return
        case Victim.BOTH:
            service.kill_agent()
            service.kill()
        case Victim.ORCHESTRATOR:
            service.kill()
        case Victim.STARTING:
            service.kill()
            service.begin()
            time.sleep(rng.uniform(0.0, 1.2) * median(service.start_s))
            service.kill()
    service.start()


async def _left_over(ask: Callable[[], Awaitable[ClusterStatus]]) -> list[str]:
    """What is left although all trajectories are closed."""
    found, give_up_at = "no status", time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        with suppress(Unreachable):
            status = await ask()
            if status.trajectories + status.running + status.queued == 0:
                return []
            found = f"left after the end: {status}"
        await asyncio.sleep(0.2)
    return [found]


def _wrong_in_journal(state_dir: Path, repeatable: dict[str, bool]) -> list[str]:
    """Actions that were reported or started more often than they may, by all that was written."""
    reports: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    for entry in recorded(state_dir):
        for decision in entry.decisions:
            if isinstance(decision, Report):
                reports[decision.record.action_id] += 1
            elif isinstance(decision, Start):
                starts[decision.lease.action_id] += 1
    wrong = [f"{id} was reported {reports[id]} times" for id in repeatable if reports[id] != 1]
    twice = [id for id, may in repeatable.items() if not may and starts[id] > 1]
    return wrong + [f"{id} must not be repeated, started {starts[id]} times" for id in twice]


def _size_mb(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def _print(output: Printer, found: KillFigures) -> None:
    rows = [[name, str(count)] for name, count in {**found.rounds, **found.outcomes}.items()]
    output.table(
        f"{found.actions} actions under {sum(found.rounds.values())} rounds of kill -9 "
        f"in {found.took_s:.0f} s",
        ["", "count"],
        [*rows, ["requests made again", str(found.unreachable)]],
    )
    output.console.print(
        f"A start took {median(found.start_s):.2f} s; the state has {found.state_mb} MB."
    )
    for violation in found.violations[:20]:
        output.console.print(violation, soft_wrap=True, markup=False)
    output.console.print("sound" if found.is_sound else f"{len(found.violations)} violations")
