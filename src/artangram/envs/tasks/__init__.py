"""Small tasks that a small model learns within minutes, and that use the whole cluster in earnest.

| task | what the model must find out | what runs for it |
|---|---|---|
| `calc` | which tool answers which question | commands in a sandbox, turn by turn |
| `repair` | which edit makes the function right | an elastic pytest run in a sandbox |
| `judged` | which word fits | a model service that compares meanings |
| `search` | which index knows the answer | a rate-limited HTTP API |

What is right is never shown, only rewarded. `demonstrate` shows how to speak, with tools drawn at
random: a model that imitates it succeeds about one time in five.
"""

from artangram.envs.tasks.base import DemoTask
from artangram.envs.tasks.calc import CalcTask
from artangram.envs.tasks.client import TaskClient
from artangram.envs.tasks.dialogue import Dialogue, Teachable, vocabulary
from artangram.envs.tasks.judged import JudgedTask
from artangram.envs.tasks.repair import RepairTask
from artangram.envs.tasks.search import SearchTask

__all__ = [
    "DEMO_TASKS",
    "CalcTask",
    "DemoTask",
    "Dialogue",
    "JudgedTask",
    "RepairTask",
    "SearchTask",
    "TaskClient",
    "Teachable",
    "demo_task",
    "vocabulary",
]

_TASKS: dict[str, type[DemoTask]] = {
    task.name: task for task in (CalcTask, RepairTask, JudgedTask, SearchTask)
}
DEMO_TASKS = tuple(_TASKS)


def demo_task(
    name: str, client: TaskClient, *, job: str = "demo", held_out: bool = False
) -> Teachable:
    """One of the tasks above; `held_out` has the problems that the others never see."""
    return _TASKS[name](client, job=job, held_out=held_out)
