"""A run whose trainer is lost goes on from its last checkpoint, as long as that leads anywhere."""

import pytest

pytest.importorskip("torch", reason="training needs torch")

from artangram.core.errors import BadInput
from artangram.pipeline.supervise import MOST_LOST, lived
from artangram.train.checkpoint import save
from artangram.train.learner import LearnerGone


class Lives:
    """Each life writes the checkpoint of its step, if it has one, and is lost; the last one ends.

    `told` has what each life was told: go on, or begin?
    """

    def __init__(self, out, *steps):
        self._out = out
        self._steps = list(steps)
        self.told = []

    async def __call__(self, resume):
        self.told.append(resume)
        if not self._steps:
            return
        step = self._steps.pop(0)
        if step:
            save(self._out / "checkpoints", step, write=lambda directory: None)
        raise LearnerGone("a process of the trainer ended")


async def test_a_lost_trainer_goes_on_from_the_checkpoint_that_there_is(tmp_path):
    lives = Lives(tmp_path, None, 1, None)
    await lived(lives, out=tmp_path, resume=False)
    assert lives.told == [False, False, True, True]


async def test_a_trainer_that_is_lost_again_and_again_without_progress_ends_the_run(tmp_path):
    lives = Lives(tmp_path, *[None] * 9)
    with pytest.raises(BadInput, match="3 times in a row"):
        await lived(lives, out=tmp_path, resume=False)
    assert len(lives.told) == MOST_LOST


async def test_every_new_checkpoint_gives_the_run_new_lives(tmp_path):
    lives = Lives(tmp_path, None, None, 1, None, 2, None)
    await lived(lives, out=tmp_path, resume=True)
    assert lives.told == [True, False, False, True, True, True, True]


async def test_what_is_no_loss_of_a_trainer_ends_the_run(tmp_path):
    async def life(resume):
        raise BadInput("model", "is missing", "make one")

    with pytest.raises(BadInput, match="is missing"):
        await lived(life, out=tmp_path, resume=False)
