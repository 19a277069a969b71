"""Read a training run from YAML.

```yaml
name: first
model: models/warm              # a directory; see `artangram.models`
house: house.yaml               # what the tasks may use; this machine's cores if unsaid
tasks:
  calc: {share: 1}              # a task that comes along, by its name
  mine: {task: "my_module:MyTask", share: 2, options: {level: 3}}
steps: 100
groups: 16
group_size: 8
train: {lr: 5.0e-4, epochs: 4}
```

All other keys are the fields of `RunSettings`. A key that is not known is an error, never ignored.
"""

from pathlib import Path
from typing import Any

from msgspec import Struct

from artangram.config.house import HouseSpec, read_house
from artangram.config.yamlfile import Item, read_yaml
from artangram.envs.tasks import DEMO_TASKS
from artangram.observe.badfile import AnyPath
from artangram.pipeline.settings import RunSettings
from artangram.train.settings import TrainSettings

_FIX = "see docs/training.md"
_OWN = ("model", "house", "tasks")


class TaskSpec(Struct, frozen=True, kw_only=True):
    """One task of a run."""

    share: int = 1
    """Of the groups of a batch, against the shares of the others."""
    task: str = ""
    """`module:name` of what makes it, called with the house; the shipped one if unsaid."""
    options: dict[str, Any] = {}


class TrainSpec(Struct, frozen=True, kw_only=True):
    """A run as its file describes it."""

    run: RunSettings
    model: Path
    tasks: dict[str, TaskSpec]
    house: HouseSpec


def read_train(path: AnyPath) -> TrainSpec:
    """The run that a YAML file describes. Raises `BadFile`."""
    document = read_yaml(path)
    top = document.known([*_OWN, *RunSettings.__struct_fields__])
    for needed in ("model", "tasks"):
        if needed not in top:
            raise document.bad("is missing", _FIX, key=needed)
    if "train" in top:
        top["train"].known(list(TrainSettings.__struct_fields__))
    tasks = {name: _task(name, item) for name, item in top["tasks"].mapping().items()}
    if not tasks:
        raise top["tasks"].bad("has none", "name at least one")
    rest = {key: item.plain() for key, item in top.items() if key not in _OWN}
    home = Path(path).parent
    return TrainSpec(
        run=document.converted(RunSettings, rest, fix=_FIX),
        model=home / top["model"].text(),
        tasks=tasks,
        house=read_house(home / top["house"].text()) if "house" in top else HouseSpec(),
    )


def _task(name: str, item: Item) -> TaskSpec:
    item.known(list(TaskSpec.__struct_fields__))
    spec = item.converted(TaskSpec, item.plain(), fix=_FIX)
    if not spec.task and name not in DEMO_TASKS:
        raise item.bad("is no shipped task", 'add task: "module:name"', key="task")
    if spec.share < 1:
        raise item.bad(f"{spec.share} is no share", "say 1 or more", key="share")
    return spec
