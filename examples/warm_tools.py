"""The demo's warm model: for `artangram train tools.yaml`. Half a minute."""

import shutil
from pathlib import Path

from artangram.envs.tasks import DEMO_TASKS, demo_task, vocabulary
from artangram.pipeline.warmup import warm_model

# Demonstrations need no cluster: nothing runs for them.
tasks = [demo_task(name, None) for name in DEMO_TASKS]
models = Path(__file__).parent / "models"
made = warm_model(models, tasks=tasks, vocabulary=vocabulary(), seed=0)
shutil.copytree(made, models / "tools", dirs_exist_ok=True)
