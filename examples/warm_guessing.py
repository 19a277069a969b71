"""A tiny model that knows how to answer, but not what: for `artangram train guessing.yaml`."""

import shutil
from pathlib import Path

from guessing import COLOURS, Guessing

from artangram.models.vocabulary import Vocabulary
from artangram.pipeline.warmup import warm_model
from artangram.train.warmup import WarmupSettings

models = Path(__file__).parent / "models"
made = warm_model(
    models,
    tasks=[Guessing(None)],
    vocabulary=Vocabulary(sorted({*COLOURS, *COLOURS.values()})),
    seed=0,
    settings=WarmupSettings(steps=80, batch=16),
)
shutil.copytree(made, models / "guessing", dirs_exist_ok=True)
