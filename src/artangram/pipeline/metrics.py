"""What a run says of itself: one JSON line per step, and the same numbers to other sinks.

A resumed run forgets the lines of steps that it makes again, so that every step has one line.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.gateway.counters import TaskTokens
from artangram.pipeline.meter import ActionUsage
from artangram.pipeline.sinks import sinks
from artangram.rollout.tally import Bias
from artangram.train.tally import StepMetrics

FILE_NAME = "metrics.jsonl"


class StepRecord(Struct, frozen=True, kw_only=True):
    """One step, as a line of the file."""

    step: int
    at_s: float
    """Since the run began, restarts not counted."""
    collect_s: float
    """The trainer waited for its batch."""
    train_s: float
    publish_s: float
    """From the end of training to the last engine with the new weights."""
    exposed_s: float
    """Of that, engines stood still."""
    examined_s: float = 0.0
    """Of that, the new weights waited until the evaluation of those before had ended."""
    report: StepMetrics
    ended: dict[str, int]
    """Trajectories since the run began, by how they ended."""
    tokens: dict[str, TaskTokens] = {}
    """Of each task since the process began: turns, tokens read and written, cache hits."""
    cut_off: dict[str, Bias] = {}
    """Of each task since the run began: how many were cancelled, and were those longer?"""
    lost_engines: int = 0
    stalled_engines: int = 0
    """Of these, the ones that stood still until they were given up."""
    usage: ActionUsage = ActionUsage()
    """What the cluster did for the run during the step."""
    problems: tuple[str, ...] = ()
    """Of its batch, as `task/problem`: over all steps each one once."""


class Metrics:
    """The file of a run, and its sinks."""

    def __init__(
        self,
        directory: Path,
        *,
        after_step: int = 0,
        run: str = "run",
        trackers: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE_NAME
        kept = [r for r in read(self.path) if r.step <= after_step] if after_step else []
        self.began_s = kept[-1].at_s if kept else 0.0
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in kept))
        unfinished.rename(self.path)
        self._sinks = sinks(directory, run=run, trackers=trackers)

    def add(self, record: StepRecord) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
        self.tell(scalars(record), step=record.step)

    def tell(self, values: Mapping[str, float], *, step: int) -> None:
        """The sinks alone."""
        for sink in self._sinks:
            sink.add(values, step=step)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def read(path: Path) -> list[StepRecord]:
    """The records of a file; a last line that a crash cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [msgspec.json.decode(line, type=StepRecord) for line in lines[:-1] if line]


def scalars(record: StepRecord) -> dict[str, float]:
    """What is worth a curve, by name."""
    report, usage = record.report, record.usage
    found = {f"reward/{task}": value for task, value in report.rewards.items()}
    found |= {"reward": report.reward, "train/loss": report.loss, "train/entropy": report.entropy}
    found |= {"train/stale_share": report.stale_share, "train/grad_norm": report.grad_norm}
    found |= {"train/max_staleness": float(report.max_staleness)}
    found |= {"reward/deviation": report.reward_deviation, "train/kl": report.kl}
    found |= {"train/clip_fraction": report.clip_share, "train/mismatch_kl": report.mismatch_kl}
    found |= {"train/is_skipped": float(report.is_skipped), "train/samples": float(report.samples)}
    found |= {"rollout/length": report.length, "rollout/max_length": float(report.max_length)}
    found |= {"rollout/truncated": report.truncated, "rollout/equal_groups": report.equal_groups}
    if report.teacher_gap:
        found["train/teacher_gap"] = report.teacher_gap
    took_s = record.collect_s + record.train_s
    found |= {"run/publish_s": record.publish_s, "run/exposed_s": record.exposed_s}
    found |= {"run/tokens_per_s": report.length * report.trajectories / took_s if took_s else 0.0}
    found |= {"run/collect_s": record.collect_s, "run/train_s": record.train_s}
    found |= {f"cancelled/{task}": float(bias.cancelled) for task, bias in record.cut_off.items()}
    found |= {
        f"cancelled_length/{task}": bias.tokens
        for task, bias in record.cut_off.items()
        if bias.tokens is not None
    }
    found |= {"run/lost_engines": float(record.lost_engines)}
    found |= {"run/stalled_engines": float(record.stalled_engines)}
    found |= {
        f"gateway/hit_rate/{task}": one.hit_rate for task, one in record.tokens.items() if one.asked
    }
    found |= {f"act_s/{kind}": acts.act_s for kind, acts in usage.kinds.items()}
    found |= {f"busy/{name}": amount for name, amount in usage.busy.items()}
    return found
