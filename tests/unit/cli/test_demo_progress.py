"""What the demo says while it runs."""

from io import StringIO

import pytest
from rich.console import Console
from step_builder import a_step

from artangram.cli.demo.progress import DemoProgress
from artangram.pipeline.meter import ActionUsage, Acts

ACTS = Acts(count=3, act_s=0.5, wait_s=0.1, run_s=0.4)
USAGE = ActionUsage(kinds={"search/api": ACTS}, busy={"cpu": 1.5}, capacity={"cpu": 2.0})


@pytest.mark.parametrize("is_terminal", [True, False])
def test_success_act_and_what_is_at_work_are_shown(is_terminal):
    seen = StringIO()
    console = Console(file=seen, force_terminal=is_terminal, width=200, highlight=False)
    with DemoProgress(console, steps=10) as progress:
        progress.show(a_step(10, usage=USAGE))
    said = seen.getvalue()
    assert "calc" in said
    assert "0.50" in said
    assert "search/api 0.50 s (waited 0.10)" in said
    assert "cpu 75 % of 2" in said


def test_a_log_has_a_line_every_tenth_step_and_at_the_end():
    seen = StringIO()
    with DemoProgress(Console(file=seen, width=200, highlight=False), steps=14) as progress:
        for step in range(1, 15):
            progress.show(a_step(step))
    lines = [line for line in seen.getvalue().splitlines() if line.startswith("step")]
    assert [line.split(",")[0] for line in lines] == ["step 10/14", "step 14/14"]
