"""Who learns for a run: the trainer of this process, or processes of its own."""

from pathlib import Path

from artangram.pipeline.settings import RunSettings
from artangram.train.learner import Learner
from artangram.train.placing import placed
from artangram.train.ranks import Ranks
from artangram.train.trainer import Trainer

LOG_NAME = "trainer.log"


def learner_of(settings: RunSettings, *, model: Path, out: Path) -> Learner:
    """Ready for its first step; takes seconds. Raises `BadInput`."""
    train = settings.train
    if train.processes > 1:
        return Ranks(model, train, seed=settings.seed, log=out / LOG_NAME)
    return Trainer(placed(model, train.device, seed=settings.seed), train)
