"""Training runs on a page: their curves side by side, their time, and what the model said."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from artangram.cli.page import SMOOTH, Block, Curve, Excerpt, Figure, Section, Tile
from artangram.core.errors import BadInput
from artangram.pipeline import exams, metrics, transcripts
from artangram.pipeline.exams import ExamRecord
from artangram.pipeline.metrics import StepRecord
from artangram.pipeline.transcripts import Transcript

MOST_TEXT_CHARACTERS = 4000
"""Of one utterance: a page is read by people."""


class _ReportedRun(Struct, frozen=True, kw_only=True):
    name: str
    steps: list[StepRecord]
    exams: list[ExamRecord]
    attempts: list[Transcript]


def run_tiles(places: Sequence[Path]) -> list[Tile]:
    """First and last reward of each run."""
    return [
        Tile(f"{_reward(run.steps[:SMOOTH]):.2f} > {_reward(run.steps[-SMOOTH:]):.2f}", run.name)
        for run in map(_read, places)
        if run.steps
    ]


def run_blocks(places: Sequence[Path]) -> list[Block]:
    """All that a page says of the runs. Raises `BadInput` if one has made no step."""
    runs = [_read(place) for place in places]
    for place, run in zip(places, runs, strict=True):
        if not run.steps:
            raise BadInput(str(place), "has made no step yet", "wait for its first one")
    blocks: list[Block] = [*_figures(runs), _learning(runs), _time(runs)]
    for run in runs:
        blocks += _said(run)
    return blocks


def _read(place: Path) -> _ReportedRun:
    return _ReportedRun(
        name=place.resolve().name,
        steps=metrics.read(place / metrics.FILE_NAME),
        exams=exams.read(place / exams.FILE_NAME),
        attempts=transcripts.read(place / transcripts.FILE_NAME),
    )


def _figures(runs: Sequence[_ReportedRun]) -> Iterator[Figure]:
    if len(runs) > 1:
        yield Figure(
            curves=[_curve(run.name, run, "reward") for run in runs],
            shows="mean reward of each run over steps",
            caption=f"Mean reward of all tasks, mean of {SMOOTH} steps.",
        )
    for run in runs:
        tasks = sorted({task for step in run.steps for task in step.report.rewards})
        yield Figure(
            curves=[_curve(task, run, f"reward/{task}") for task in tasks],
            shows=f"reward of {run.name} by task over steps",
            caption=f"{run.name}: reward of the attempts that were trained on, per task, mean of "
            f"{SMOOTH} steps.",
        )
        if any(record.step for record in run.exams):
            yield _held_out(run)


def _held_out(run: _ReportedRun) -> Figure:
    best = max(run.exams, key=lambda record: record.found.success)
    tasks = sorted({task for record in run.exams for task in record.found.by_task})
    return Figure(
        curves=[_exam_curve(task, run.exams) for task in tasks],
        shows=f"held-out problems of {run.name} by task over steps",
        caption=f"{run.name}: mean reward on held-out problems, per task; the circle is the model "
        f"it began with. The best is {best.found.success:.3f} at step {best.step}, kept as `best`.",
    )


def _exam_curve(task: str, records: Sequence[ExamRecord]) -> Curve:
    found = {r.step: r.found.by_task[task] for r in records if task in r.found.by_task}
    before = found.pop(0, None)
    return Curve(name=task, points=tuple(found.items()), before=before, smooth=1)


def _curve(name: str, run: _ReportedRun, series: str) -> Curve:
    found = ((step.step, metrics.scalars(step)) for step in run.steps)
    points = tuple((step, values[series]) for step, values in found if series in values)
    return Curve(name=name, points=points)


def _learning(runs: Sequence[_ReportedRun]) -> Section:
    head = ["run", "steps", "skipped", "reward first", "reward last", "stale tokens", "truncated"]
    rows = [
        [
            run.name,
            str(len(run.steps)),
            str(sum(step.report.is_skipped for step in run.steps)),
            f"{_reward(run.steps[:SMOOTH]):.3f}",
            f"{_reward(run.steps[-SMOOTH:]):.3f}",
            f"{100 * _mean([step.report.stale_share for step in run.steps]):.0f} %",
            f"{100 * _mean([step.report.truncated for step in run.steps]):.0f} %",
        ]
        for run in runs
    ]
    gains = [(_reward(run.steps[:SMOOTH]), _reward(run.steps[-SMOOTH:])) for run in runs]
    longest = max([1.0, *(abs(value) for pair in gains for value in pair)])
    return Section(
        title="What was learned",
        note=f"Rewards of the attempts trained on, mean of the first and the last {SMOOTH} steps.",
        rows=[head, *rows],
        bars=[
            [max(0.0, min(pair)) / longest, max(0.0, pair[1] - max(0.0, pair[0])) / longest]
            for pair in gains
        ],
        parts=["first", "gained"],
    )


def _time(runs: Sequence[_ReportedRun]) -> Section:
    parts = [
        [
            _mean([step.collect_s for step in run.steps]),
            _mean([step.train_s for step in run.steps]),
            _mean([step.exposed_s for step in run.steps]),
        ]
        for run in runs
    ]
    longest_s = max(sum(one) for one in parts) or 1.0
    return Section(
        title="Seconds of a step",
        note="The trainer waited for its batch, then computed; engines stood still to take new "
        "weights. Attempts go on meanwhile.",
        rows=[["run", "waited", "computed", "engines stood still", "whole run"]]
        + [
            [run.name, *(f"{s:.2f}" for s in one), f"{run.steps[-1].at_s:.0f}"]
            for run, one in zip(runs, parts, strict=True)
        ],
        bars=[[s / longest_s for s in one] for one in parts],
        parts=["waited", "computed", "stood still"],
    )


def _said(run: _ReportedRun) -> Iterator[Excerpt]:
    """For each task the best attempt of its first step, and the best and worst of its last."""
    by_task: dict[str, list[Transcript]] = {}
    for one in run.attempts:
        by_task.setdefault(one.task, []).append(one)
    for task, kept in sorted(by_task.items()):
        first = [one for one in kept if one.step == min(found.step for found in kept)]
        last = [one for one in kept if one.step == max(found.step for found in kept)]
        chosen = {("best", max(first, key=_rank).trajectory): max(first, key=_rank)}
        chosen[("worst", min(last, key=_rank).trajectory)] = min(last, key=_rank)
        chosen[("best", max(last, key=_rank).trajectory)] = max(last, key=_rank)
        yield from (_excerpt(run.name, task, which, one) for (which, _), one in chosen.items())


def _excerpt(run: str, task: str, which: str, one: Transcript) -> Excerpt:
    reward = "no reward" if one.reward is None else f"reward {one.reward:.2f}"
    return Excerpt(
        title=f"{run}, {task}, step {one.step}, the {which} attempt kept: {reward}, {one.status}",
        parts=[
            ("model" if part.is_sampled else "given", part.text[:MOST_TEXT_CHARACTERS])
            for conversation in one.conversations
            for part in conversation
        ],
    )


def _rank(one: Transcript) -> float:
    return float("-inf") if one.reward is None else one.reward


def _reward(steps: Sequence[StepRecord]) -> float:
    return _mean([step.report.reward for step in steps])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
