"""Does the quick start learn on three hosts with Ray as on one machine, though one loses power?

- The model, the settings and the problems of the quick start, with a command in a sandbox for each
  answer (`quickstarttask`): first with a cluster of its own, then with `--url ray://auto` on a real
  Ray cluster of three namespace hosts, the last of which loses power in the middle.
- The loss must cost only attempts on that host: the journal tells where each action ran.
"""

import asyncio
import json as json_module
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.decisions import Report, Start
from artangram.managers.cpu import cores_of
from artangram.observe.recording import recorded
from artangram.orchestrator.connect import connect
from artangram.pipeline.metrics import StepRecord, read
from artangram_bench.hosts import CAN_MAKE_HOSTS, WHY_NOT, environ, some_hosts
from artangram_bench.quickstarttask import COLOURS, FruitTask
from artangram_bench.rayhosts import RayHost, until
from artangram_bench.result import Origin

NET = 86
TOKEN = "callers-token"
NAME = "quickstart"
ENDS = 3
"""Steps at each end of a run whose rewards are averaged."""
LEARNED = 0.85
"""Mean reward of the last steps of a run that has learned."""
PATIENCE_S = 900.0

_RUN = """
name: {name}
model: {model}
tasks:
  fruits: {{task: "artangram_bench.quickstarttask:FruitTask"}}
steps: {steps}
groups: 12
environments: 96
train: {{epochs: 4, lr: 5.0e-4, entropy: 0.02, min_samples: 8}}
"""


class QuickRun(Struct, frozen=True, kw_only=True):
    """One training run."""

    took_s: float
    first: float
    """Mean reward of its first steps."""
    last: float
    ended: dict[str, int]
    """Attempts, by how they ended."""

    @property
    def is_learned(self) -> bool:
        return self.last >= LEARNED


class QuickFigures(Struct, frozen=True, kw_only=True):
    steps: int
    lost_after_step: int
    lost_host: str
    sandboxes_there: int
    """Just before the loss."""
    alone: QuickRun
    on_ray: QuickRun
    actions_by_host: dict[str, int]
    """On Ray, those that ended well."""
    failed_by_host: dict[str, int]

    @property
    def is_sound(self) -> bool:
        costs_only_its_own = set(self.failed_by_host) <= {self.lost_host}
        took_part = len(self.actions_by_host) == 3
        return self.alone.is_learned and self.on_ray.is_learned and costs_only_its_own and took_part


def quickstart(
    steps: Annotated[int, typer.Option(help="Of each run.", min=6)] = 50,
    lose_after: Annotated[int, typer.Option(help="Step after which a host is lost.", min=1)] = 8,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Train on three hosts with Ray, one of which loses power; exit code 1 if that costs more."""
    if not CAN_MAKE_HOSTS:
        raise BadInput("quickstart", WHY_NOT, "run it as root where both are installed")
    output, origin = Printer(json), Origin()
    with TemporaryDirectory(prefix="artangram-quickstart-") as name, output.progress() as progress:
        progress.add_task("training")
        folder = Path(name)
        folder.chmod(0o755)
        file = _run_file(folder, steps)
        found = _OnRay(folder, file, steps=steps, lose_after=lose_after).figures(
            _alone(folder, file)
        )
    _print(output, found)
    output.json(origin.result("Does the quick start learn on Ray, with a host lost?", found))
    if not found.is_sound:
        raise typer.Exit(1)


def _run_file(folder: Path, steps: int) -> Path:
    from artangram.models.vocabulary import Vocabulary
    from artangram.pipeline.warmup import warm_model
    from artangram.train.warmup import WarmupSettings

    model = warm_model(
        folder / "models",
        tasks=[FruitTask(None)],
        vocabulary=Vocabulary(sorted({*COLOURS, *COLOURS.values()})),
        seed=0,
        settings=WarmupSettings(steps=80, batch=16),
    )
    file = folder / "run.yaml"
    file.write_text(_RUN.format(name=NAME, model=model, steps=steps))
    return file


def _alone(folder: Path, file: Path) -> QuickRun:
    program = "from artangram.cli import main; raise SystemExit(main())"
    words = ("train", str(file), "--out", str(folder / "alone"), "--no-dashboard")
    with open(folder / "alone.log", "ab") as log:
        began_at = time.monotonic()
        subprocess.run(
            [sys.executable, "-c", program, *words],
            env=environ(),
            stdout=log,
            stderr=log,
            check=True,
        )
    return _ran(folder / "alone", time.monotonic() - began_at)


def _ran(out: Path, took_s: float) -> QuickRun:
    records = _records(out)
    rewards = [record.report.reward for record in records]
    return QuickRun(
        took_s=took_s,
        first=mean(rewards[:ENDS]),
        last=mean(rewards[-ENDS:]),
        ended=records[-1].ended,
    )


def _records(out: Path) -> list[StepRecord]:
    return read(out / NAME / "metrics.jsonl")


class _OnRay:
    """Three hosts with a raylet each; our head on the first."""

    def __init__(self, folder: Path, file: Path, *, steps: int, lose_after: int) -> None:
        self._folder = folder
        self._file = file
        self._steps = steps
        self._lose_after = lose_after
        self._sandboxes = 0

    def figures(self, alone: QuickRun) -> QuickFigures:
        with some_hosts(3, net=NET) as made:
            hosts = [RayHost(host, self._folder) for host in made]
            for host in hosts:
                host.boot()
            for host in hosts:
                host.start_ray(hosts[0], cpus=1)
            with self._serving(hosts) as url:
                on_ray = self._trained(hosts, url)
        done, failed = self._by_host()
        return QuickFigures(
            steps=self._steps,
            lost_after_step=self._lose_after,
            lost_host=hosts[-1].name,
            sandboxes_there=self._sandboxes,
            alone=alone,
            on_ray=on_ray,
            actions_by_host=dict(done),
            failed_by_host=dict(failed),
        )

    @contextmanager
    def _serving(self, hosts: list[RayHost]) -> Iterator[str]:
        log, told = self._folder / "up.log", self._folder / "serves.json"
        words = ("--state-dir", str(self._folder / "state"), "--json", str(told))
        up = hosts[0].artangram("up", "--ray", "auto", *words, log=log, ARTANGRAM_TOKEN=TOKEN)
        until(lambda: told.exists() and told.read_text().endswith("}\n"), log)
        for host in hosts[1:]:
            until(partial(_says, log, f"Ray node {host.name}: claimed"), log)
        try:
            yield str(json_module.loads(told.read_text())["url"])
        finally:
            for pid in hosts[0].pids("from artangram.cli", "--ray"):
                os.kill(pid, signal.SIGTERM)
            up.wait(PATIENCE_S)

    def _trained(self, hosts: list[RayHost], url: str) -> QuickRun:
        out, log = self._folder / "ray", self._folder / "train.log"
        words = ("train", str(self._file), "--out", str(out), "--url", "ray://auto")
        began_at = time.monotonic()
        training = hosts[0].artangram(*words, "--no-dashboard", log=log)
        until(lambda: self._has_come(out, training, log), log, PATIENCE_S)
        self._sandboxes = asyncio.run(_sandboxes_on(hosts[-1].name, url))
        hosts[-1].host.lose_power()
        code = training.wait(PATIENCE_S)
        assert code == 0, log.read_text()[-3000:]
        return _ran(out, time.monotonic() - began_at)

    def _has_come(self, out: Path, training: subprocess.Popen[bytes], log: Path) -> bool:
        assert training.poll() is None, log.read_text()[-3000:]
        return len(_records(out)) >= self._lose_after

    def _by_host(self) -> tuple[Counter[str], Counter[str]]:
        """Actions that succeeded, and those that infrastructure failed, by where they ran.

        One that never started belongs to the host of its attempt's sandbox.
        """
        where: dict[ActionId, str] = {}
        homes: dict[TrajectoryId | None, str] = {}
        done: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for entry in recorded(self._folder / "state"):
            for decision in entry.decisions:
                if isinstance(decision, Start):
                    cores = cores_of(decision.lease)
                    where[decision.lease.action_id] = "-" if cores is None else str(cores.node)
                elif isinstance(decision, Report):
                    record = decision.record
                    home = homes.get(record.trajectory, "no host")
                    host = homes[record.trajectory] = where.get(record.action_id, home)
                    done[host] += record.outcome is Outcome.SUCCEEDED
                    failed[host] += record.outcome is Outcome.INFRA_FAILED
        return +done, +failed


def _says(log: Path, text: str) -> bool:
    return text in log.read_text()


async def _sandboxes_on(node: str, url: str) -> int:
    async with connect(url, token=TOKEN) as client:
        nodes = {one.node: one for one in (await client.status()).nodes}
    population = nodes[node].population if node in nodes else None
    return 0 if population is None else population.sandboxes


def _print(output: Printer, found: QuickFigures) -> None:
    rows = [
        [name, f"{run.first:.2f}", f"{run.last:.2f}", f"{run.took_s:.0f}", _counts(run.ended)]
        for name, run in (("on one machine", found.alone), ("three hosts", found.on_ray))
    ]
    output.table("quick start", ["", "first", "last", "took s", "attempts"], rows)
    said = (
        f"{found.lost_host} lost power after step {found.lost_after_step} with "
        f"{found.sandboxes_there} sandboxes; failed actions: {_counts(found.failed_by_host)}; "
        f"actions that succeeded: {_counts(found.actions_by_host)}"
    )
    output.console.print(said, soft_wrap=True)
    output.console.print("sound" if found.is_sound else "not sound")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
