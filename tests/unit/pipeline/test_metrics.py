"""What a step says of itself: what was cut off, and engines that stood still."""

from msgspec import structs
from step_builder import a_step

from artangram.pipeline.metrics import Metrics, read, scalars
from artangram.rollout import Bias

LONG = Bias(kept=8, cancelled=3, tokens=1.5, seconds=2.0)
NONE_CUT = Bias(kept=8, cancelled=0, tokens=None, seconds=None)
CUT = structs.replace(
    a_step(1), cut_off={"calc": LONG, "code": NONE_CUT}, lost_engines=2, stalled_engines=1
)


def test_what_was_cut_off_is_a_curve_of_every_task():
    found = scalars(CUT)
    assert (found["cancelled/calc"], found["cancelled/code"]) == (3, 0)
    assert found["cancelled_length/calc"] == 1.5
    assert "cancelled_length/code" not in found


def test_engines_that_stood_still_are_told_from_those_that_died():
    found = scalars(CUT)
    assert (found["run/lost_engines"], found["run/stalled_engines"]) == (2, 1)


def test_a_line_reads_back_as_it_was_written(tmp_path):
    metrics = Metrics(tmp_path)
    metrics.add(CUT)
    metrics.close()
    assert read(metrics.path) == [CUT]
