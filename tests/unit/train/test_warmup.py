"""Imitation: what is shown becomes likely, and the rates follow their plan."""

from itertools import repeat

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from artangram.train.warmup import Demonstration, WarmupSettings, imitate  # noqa: E402
from unit.train.attempts import a_model  # noqa: E402

SHOWN = Demonstration(token_ids=(1, 2, 3, 4, 5), imitated=(3, 4))


def test_what_is_shown_becomes_likely():
    torch.set_num_threads(1)
    losses = []
    settings = WarmupSettings(steps=40, batch=2)
    last = imitate(
        a_model(), repeat(SHOWN), settings=settings, on_step=lambda _, loss: losses.append(loss)
    )
    assert len(losses) == settings.steps
    assert last == pytest.approx(sum(losses[-4:]) / 4)
    assert last < 0.2 * losses[0]
