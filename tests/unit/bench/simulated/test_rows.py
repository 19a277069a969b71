"""A verdict has two sides: more than the paper's gain is no proof of anything, either."""

import pytest

from artangram_bench.simulated.rows import PaperVerdict, verdict_of


@pytest.mark.parametrize(
    ("gain", "is_trainer_bound", "verdict"),
    [
        (1.30, False, PaperVerdict.REPRODUCED),
        (1.16, False, PaperVerdict.REPRODUCED),
        (1.15, False, PaperVerdict.BEHIND),
        (1.15, True, PaperVerdict.ANOTHER_REGIME),
        (1.25, True, PaperVerdict.REPRODUCED),
        (1.45, False, PaperVerdict.AHEAD),
        (1.80, False, PaperVerdict.ANOTHER_REGIME),
    ],
)
def test_a_gain_is_judged_on_both_sides(gain, is_trainer_bound, verdict):
    assert verdict_of(gain, (1.22, 1.36), is_trainer_bound=is_trainer_bound) is verdict
