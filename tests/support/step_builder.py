"""A step of a training run that nobody made."""

from artangram.pipeline.meter import ActionUsage
from artangram.pipeline.metrics import StepRecord
from artangram.train.tally import StepMetrics

NO_USAGE = ActionUsage()


def a_step(step: int, reward: float = 0.5, *, usage: ActionUsage = NO_USAGE) -> StepRecord:
    report = StepMetrics(
        version=step,
        is_skipped=False,
        groups=1,
        trajectories=8,
        samples=8,
        reward=reward,
        rewards={"calc": reward},
        tokens=10,
        loss=0.0,
        entropy=0.1,
        grad_norm=1.0,
        stale_share=0.5,
        max_staleness=1,
        stale_ratio=1.0,
        fresh_error=0.0,
    )
    return StepRecord(
        step=step,
        at_s=float(step),
        collect_s=0.25,
        train_s=0.5,
        publish_s=0.1,
        exposed_s=0.01,
        report=report,
        ended={"ok": 8 * step},
        usage=usage,
    )
