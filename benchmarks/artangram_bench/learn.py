"""`artangram bench learn`: does the demo learn, with every seed, and only from true rewards?

- Each seed runs with its rewards, and with the rewards of each batch shuffled. The second must not
  learn, or something other than the rewards teaches.
- One seed also runs synchronously, with the same problems and as many samples, to compare wall
  time: once with tools that wait as outside APIs do, and once with tools that only compute, where
  there is little to overlap.
- A run takes minutes, so each result is kept in `out`. A second call at the same commit, after an
  interruption or for more seeds, reads it from there.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import MsgspecError, Struct, structs
from msgspec.json import decode as json_decode
from msgspec.json import encode as json_encode

from artangram.cli.demo import STEPS
from artangram.cli.output import Printer
from artangram.core.rollout.trajectory import Group
from artangram_bench.result import Origin, seeds_of

if TYPE_CHECKING:
    from artangram.cli.demo.session import TrainedModel

GOAL = 0.85
"""Success on held-out problems that counts as learned."""
SEEDS = "0,1,2,3,4"


class Asked(Struct, frozen=True, kw_only=True):
    """Which run."""

    seed: int
    mode: str = "asynchronous"
    latency_s: float
    """The median of the search API."""
    is_shuffled: bool = False

    @property
    def name(self) -> str:
        rewards = "shuffled" if self.is_shuffled else "true"
        return f"seed{self.seed}-{self.mode}-{self.latency_s:g}s-{rewards}"


class LearnRun(Asked, frozen=True, kw_only=True):
    """One run of the demo and its settings."""

    before: float
    after: float
    by_task: dict[str, float]
    training_s: float
    trained: int
    """Attempts that batches were made of."""
    curve: tuple[float, ...]
    """Mean reward of the attempts of each step."""
    max_staleness: int
    fresh_error: float

    @property
    def asked(self) -> Asked:
        return Asked(**{name: getattr(self, name) for name in Asked.__struct_fields__})


class Kept(Struct, frozen=True, kw_only=True):
    """A run in its file, and what it is true of."""

    commit: str
    steps: int
    run: LearnRun


class Comparison(Struct, frozen=True, kw_only=True):
    """The same run, asynchronous and synchronous."""

    latency_s: float
    speedup: float
    """How many times longer the synchronous one took."""
    after: tuple[float, float]
    """Success of the asynchronous and of the synchronous one."""


def learn(
    seeds: Annotated[str, typer.Option(help="Seeds, with commas.")] = SEEDS,
    steps: Annotated[int, typer.Option(help="Steps of each run.")] = STEPS,
    shuffled: Annotated[str, typer.Option(help="Seeds to run with shuffled rewards.")] = SEEDS,
    compare: Annotated[bool, typer.Option(help="Run the first seed synchronously, too.")] = True,
    out: Annotated[Path, typer.Option(help="Folder for the runs; each is kept.")] = Path(
        "out/learn"
    ),
    json: Annotated[str | None, typer.Option(help="Write the result to a file, or -.")] = None,
) -> None:
    """Run the demo with several seeds, with true rewards and with shuffled ones."""
    origin, output, chosen = Origin(), Printer(json), seeds_of(seeds)
    dealt = seeds_of(shuffled) if shuffled else ()
    runs: list[LearnRun] = []
    for asked in plan(chosen, compare=compare, shuffled=dealt):
        runs.append(kept(out, steps, asked, origin.commit) or _made(out, steps, asked, origin))
        _show(runs, output)
    default = [run for run in runs if run.asked in plan(chosen, compare=False, shuffled=())]
    learned = sum(run.after >= GOAL for run in default)
    output.console.print(f"{learned} of {len(default)} seeds with true rewards reached {GOAL}.")
    compared = comparisons(runs)
    for one in compared:
        output.console.print(
            f"Search that takes {one.latency_s:g} s: asynchronous is {one.speedup:.2f}x as fast, "
            f"success {one.after[0]:.2f} against {one.after[1]:.2f}."
        )
    question = "Does the demo learn with every seed, and only from true rewards?"
    found = {
        "steps": steps,
        "goal": GOAL,
        "comparisons": compared,
        "runs": [run for run in runs if run.latency_s],
        "computing": [run for run in runs if not run.latency_s],
    }
    output.json(origin.result(question, found))


def plan(seeds: Sequence[int], *, compare: bool, shuffled: Sequence[int]) -> list[Asked]:
    """Every run once. Those that are compared come one after the other."""
    from artangram.cli.demo.session import SEARCH_LATENCY_S

    default = [Asked(seed=seed, latency_s=SEARCH_LATENCY_S) for seed in seeds]
    first = default[0]
    pairs = [
        structs.replace(first, mode=mode, latency_s=latency_s)
        for latency_s in (SEARCH_LATENCY_S, 0.0)
        for mode in ("asynchronous", "synchronous")
    ]
    dealt = [structs.replace(first, seed=seed, is_shuffled=True) for seed in shuffled]
    return [*(pairs if compare else [first]), *default[1:], *dealt]


def comparisons(runs: Sequence[LearnRun]) -> list[Comparison]:
    """Of all runs that were made both ways."""
    by_asked = {run.asked: run for run in runs}
    found = []
    for run in runs:
        other = by_asked.get(structs.replace(run.asked, mode="synchronous"))
        if other is not None and other is not run:
            found.append(
                Comparison(
                    latency_s=run.latency_s,
                    speedup=other.training_s / run.training_s,
                    after=(run.after, other.after),
                )
            )
    return found


def kept(out: Path, steps: int, asked: Asked, commit: str) -> LearnRun | None:
    """The result of this run at this commit, if there is one."""
    try:
        found = json_decode((out / f"{asked.name}.json").read_bytes(), type=Kept)
    except (OSError, MsgspecError):
        return None
    is_this = (found.commit, found.steps, found.run.asked) == (commit, steps, asked)
    # An uncommitted tree has no name to keep results under.
    return found.run if is_this and not commit.endswith("+") else None


def _made(out: Path, steps: int, asked: Asked, origin: Origin) -> LearnRun:
    run = asyncio.run(_run(out / asked.name, steps, asked))
    keep(out, Kept(commit=origin.commit, steps=steps, run=run))
    return run


def keep(out: Path, found: Kept) -> None:
    (out / f"{found.run.name}.json").write_bytes(json_encode(found))


async def _run(out: Path, steps: int, asked: Asked) -> LearnRun:
    from artangram.cli.demo.session import DemoRun

    chance = Random(asked.seed)
    session = DemoRun(
        out,
        steps=steps,
        seed=asked.seed,
        mode=asked.mode,
        latency_s=asked.latency_s,
        reshape=(lambda groups: dealt_out(groups, chance)) if asked.is_shuffled else None,
    )
    return _summary(await session.learn(), asked)


def _summary(found: "TrainedModel", asked: Asked) -> LearnRun:
    reports = [step.report for step in found.steps]
    return LearnRun(
        **structs.asdict(asked),
        before=found.before.success,
        after=found.after.success,
        by_task=found.after.by_task,
        training_s=found.training_s,
        trained=sum(report.trajectories for report in reports),
        curve=tuple(round(report.reward, 4) for report in reports),
        max_staleness=max(report.max_staleness for report in reports),
        fresh_error=max(report.fresh_error for report in reports),
    )


def dealt_out(groups: Sequence[Group], chance: Random) -> list[Group]:
    """The same groups, their rewards shuffled among all attempts of the batch."""
    rewards = [attempt.reward for group in groups for attempt in group.trajectories]
    chance.shuffle(rewards)
    given = iter(rewards)
    return [
        structs.replace(
            group,
            trajectories=tuple(
                structs.replace(attempt, reward=next(given)) for attempt in group.trajectories
            ),
        )
        for group in groups
    ]


def _show(runs: Sequence[LearnRun], output: Printer) -> None:
    rows = [
        [
            f"{run.seed}",
            run.mode,
            f"{run.latency_s:g}",
            "shuffled" if run.is_shuffled else "true",
            f"{run.before:.2f}",
            f"{run.after:.2f}",
            f"{run.training_s:.0f}",
        ]
        for run in runs
    ]
    columns = ["seed", "mode", "search s", "rewards", "before", "after", "seconds"]
    output.table("Success on held-out problems", columns, rows)
