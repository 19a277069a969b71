"""What the demo says while it runs."""

from io import StringIO

import pytest
from rich.console import Console

from artangram.cli.demo.progress import Progress
from artangram.pipeline.meter import Acts, Usage
from artangram.pipeline.metrics import StepRecord
from artangram.train.tally import Report


def a_record(step):
    report = Report(
        version=step,
        is_skipped=False,
        groups=1,
        trajectories=8,
        samples=8,
        reward=0.5,
        rewards={"calc": 0.5},
        tokens=10,
        loss=0.0,
        entropy=0.1,
        grad_norm=1.0,
        stale_share=0.25,
        max_staleness=1,
        stale_ratio=1.0,
        fresh_error=0.0,
    )
    acts = Acts(count=3, act_s=0.5, wait_s=0.1, run_s=0.4)
    usage = Usage(kinds={"search/api": acts}, busy={"cpu": 1.5}, capacity={"cpu": 2.0})
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


@pytest.mark.parametrize("is_terminal", [True, False])
def test_success_act_and_what_is_at_work_are_shown(is_terminal):
    seen = StringIO()
    console = Console(file=seen, force_terminal=is_terminal, width=200, highlight=False)
    with Progress(console, steps=10) as progress:
        progress.show(a_record(10))
    said = seen.getvalue()
    assert "calc" in said
    assert "0.50" in said
    assert "search/api 0.50 s (waited 0.10)" in said
    assert "cpu 75 % of 2" in said


def test_a_log_has_a_line_every_tenth_step_and_at_the_end():
    seen = StringIO()
    with Progress(Console(file=seen, width=200, highlight=False), steps=14) as progress:
        for step in range(1, 15):
            progress.show(a_record(step))
    lines = [line for line in seen.getvalue().splitlines() if line.startswith("step")]
    assert [line.split(",")[0] for line in lines] == ["step 10/14", "step 14/14"]
