"""A run outlives the processes of its trainer: it goes on from the last checkpoint.

Everything of a run ends before it is started again: engines, attempts, accounts. So a lost trainer
is handled as a killed run that is resumed.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from artangram.core.errors import BadInput
from artangram.train.checkpoint import checkpoints
from artangram.train.learner import LearnerGone

logger = logging.getLogger(__name__)

Life = Callable[[bool], Awaitable[None]]
"""A run to its end, from its last checkpoint if it is told to resume."""

MOST_LOST = 3
"""Trainers in a row that may be lost before a checkpoint is made."""


async def lived(life: Life, *, out: Path, resume: bool) -> None:
    """Start the run until it is done. Raises `BadInput` if it makes no progress."""
    lost, before = 0, checkpoints(out / "checkpoints")
    while True:
        try:
            return await life(resume)
        except LearnerGone as error:
            after = checkpoints(out / "checkpoints")
            lost, before = (1 if after != before else lost + 1), after
            if lost == MOST_LOST:
                fix = "see what it says, then say --resume"
                raise BadInput("trainer", f"{error}, {lost} times in a row", fix) from error
            resume = bool(after)
            begin = after[-1] if after else "step 0 (no checkpoint yet)"
            logger.warning("%s; restarting from %s", error, begin)
