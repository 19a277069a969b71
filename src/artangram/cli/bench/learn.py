"""`artangram bench learn`: does the demo learn, with every seed, and only from true rewards?

- Each seed is run twice: with its rewards, and with the rewards of each batch dealt out again at
  random. The second must not learn, or something other than the rewards teaches.
- One seed is run synchronously as well: the same problems and samples, to compare wall time.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct, structs

from artangram.cli.bench.result import Origin, seeds_of
from artangram.cli.output import Output
from artangram.core.trajectory import Group

if TYPE_CHECKING:
    from artangram.cli.demo.session import Learned

GOAL = 0.85
"""Success on held-out problems that counts as learned."""


class LearnRun(Struct, frozen=True, kw_only=True):
    """One run of the demo."""

    seed: int
    mode: str
    is_shuffled: bool
    before: float
    after: float
    by_task: dict[str, float]
    training_s: float
    curve: tuple[float, ...]
    """Mean reward of the attempts of each step."""
    max_staleness: int
    fresh_error: float


def learn(
    seeds: Annotated[str, typer.Option(help="With commas between.")] = "0,1,2,3,4",
    steps: Annotated[int, typer.Option(help="Of each run.")] = 140,
    shuffled: Annotated[bool, typer.Option(help="Each seed once more, rewards dealt out.")] = True,
    compare: Annotated[bool, typer.Option(help="The first once more, synchronously.")] = True,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("out/learn"),
    json: Annotated[str | None, typer.Option(help="Write the result to a file, or -.")] = None,
) -> None:
    """Run the demo with several seeds, with true rewards and with shuffled ones."""
    origin, output, chosen = Origin(), Output(json), seeds_of(seeds)
    asked = [(seed, "asynchronous", False) for seed in chosen]
    asked += [(chosen[0], "synchronous", False)] if compare else []
    asked += [(seed, "asynchronous", True) for seed in chosen] if shuffled else []
    runs = []
    for seed, mode, is_shuffled in asked:
        runs.append(asyncio.run(_run(out, steps, seed, mode=mode, is_shuffled=is_shuffled)))
        _show(runs, output)
    learned = sum(run.after >= GOAL for run in runs if not run.is_shuffled)
    output.console.print(f"{learned} runs with true rewards reached {GOAL}.")
    question = "Does the demo learn with every seed, and only from true rewards?"
    output.json(origin.result(question, {"steps": steps, "goal": GOAL, "runs": runs}))


async def _run(out: Path, steps: int, seed: int, *, mode: str, is_shuffled: bool) -> LearnRun:
    from artangram.cli.demo.session import Session

    chance = Random(seed)
    session = Session(
        out,
        steps=steps,
        seed=seed,
        mode=mode,
        reshape=(lambda groups: dealt_out(groups, chance)) if is_shuffled else None,
    )
    return _summary(await session.learn(), seed=seed, mode=mode, is_shuffled=is_shuffled)


def _summary(found: "Learned", *, seed: int, mode: str, is_shuffled: bool) -> LearnRun:
    reports = [step.report for step in found.steps]
    return LearnRun(
        seed=seed,
        mode=mode,
        is_shuffled=is_shuffled,
        before=found.before.success,
        after=found.after.success,
        by_task=found.after.by_task,
        training_s=found.training_s,
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


def _show(runs: Sequence[LearnRun], output: Output) -> None:
    rows = [
        [
            f"{run.seed}",
            run.mode,
            "shuffled" if run.is_shuffled else "true",
            f"{run.before:.2f}",
            f"{run.after:.2f}",
            f"{run.training_s:.0f}",
        ]
        for run in runs
    ]
    columns = ["seed", "mode", "rewards", "before", "after", "seconds"]
    output.table("Success on held-out problems", columns, rows)
