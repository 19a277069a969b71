"""Bugs of environments: a run that only repeats one of them ends, with its traceback.

- An error that is not `InfraFailed` is a defect. It is told apart by its task, its type and the
  line that raised it.
- Attempts of a task that end in the same defect are counted; one that may train begins anew. So a
  bug that some problems meet costs their attempts, and one that all meet ends the run.
"""

from collections.abc import Callable
from traceback import extract_tb, format_exception

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.rollout.trajectory import TRAINABLE, Trajectory

MOST_ALIKE = 8
"""Attempts in a row, each of them retried, that may end in the same defect."""
LEAST_PROBLEMS = 3
"""Of which these attempts are: a problem that breaks its environment is given up by itself."""


class EnvironmentDefect(BadInput):
    """A bug of a task that every attempt meets; `traceback` is that of the last one."""

    def __init__(self, task: str, error: BaseException, count: int) -> None:
        self.traceback = "".join(format_exception(error))
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        problem = f"{said}, in {count} attempts in a row"
        super().__init__(f"tasks.{task}", problem, "see its traceback, and continue with --resume")


class Defects:
    """See the module. Calls `on_defect` once there are too many alike."""

    def __init__(self, on_defect: Callable[[EnvironmentDefect], None]) -> None:
        self._on_defect = on_defect
        self._alike: dict[str, tuple[tuple[str, ...], list[str]]] = {}
        """By task: the last defect, and the problems of the attempts that ended in it."""

    def on_end(self, trajectory: Trajectory, error: BaseException | None) -> None:
        """An attempt has ended; `error` is what its last try raised."""
        task = trajectory.task
        if trajectory.status in TRAINABLE:
            self._alike.pop(task, None)
        elif error is not None and not isinstance(error, InfraFailed):
            kind = _kind(error)
            last, problems = self._alike.get(task, (kind, []))
            problems = [*problems, trajectory.problem] if kind == last else [trajectory.problem]
            self._alike[task] = kind, problems
            if len(problems) >= MOST_ALIKE and len(set(problems)) >= LEAST_PROBLEMS:
                self._on_defect(EnvironmentDefect(task, error, len(problems)))


def _kind(error: BaseException) -> tuple[str, ...]:
    frames = extract_tb(error.__traceback__)
    place = (frames[-1].filename, str(frames[-1].lineno)) if frames else ()
    return (type(error).__name__, *place)
