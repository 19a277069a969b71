"""A trace file checked against the cluster it is to run on, while it is read.

An action that no node, device or quota could ever serve is a mistake in one of the two files, so
it is said with its line and its field before anything runs.
"""

from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path

from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.forms import Forms
from artangram.core.scheduling.needs import Needs
from artangram.observe.trace import BadFile, TraceTrajectory, open_trace


class FittingTrace:
    """The trace in `path`, to be read as often as needed.

    Reading it raises `BadFile` at what can never run on `cluster`.
    """

    def __init__(self, path: Path, cluster: ClusterSpec) -> None:
        self._path = path
        self._forms = Forms(cluster)
        self._memory_mb = {
            name: spec.memory_mb
            for name, spec in cluster.pools.items()
            if isinstance(spec, CpuSpec)
        }
        #: Fits every node there is.
        self._safe_mb = min(self._memory_mb.values(), default=inf)
        with suppress(OSError):  # Opening it says what is wrong.
            if path.is_fifo():
                problem, fix = "a pipe can be read only once", "save the trace to a file"
                raise BadFile(path, BadInput("file", problem, fix))
        with open_trace(path) as reader:
            self.name = reader.name
            self.train_s = reader.train_s

    def __repr__(self) -> str:
        return f"<FittingTrace {self._path}>"

    @property
    def trajectories(self) -> Iterator[TraceTrajectory]:
        with open_trace(self._path) as reader:
            for trajectory in reader.trajectories:
                try:
                    self._check(trajectory)
                except BadInput as error:
                    raise BadFile(self._path, error, line=reader.line) from None
                yield trajectory

    def _check(self, trajectory: TraceTrajectory) -> None:
        home: Resource | None = None
        for nth, turn in enumerate(trajectory.turns):
            for index, action in enumerate(turn.actions):
                try:
                    self._forms.of(action.needs, trajectory.job)
                    home = self._home(action.needs, home)
                except BadInput as error:
                    raise error.within(f"turns[{nth}].actions[{index}]") from None
        if trajectory.memory_mb > self._safe_mb:
            self._check_memory(trajectory)

    def _home(self, needs: Needs, home: Resource | None) -> Resource | None:
        """The pool of cores that a trajectory lives on, which was `home` until now."""
        for name, _ in needs.amounts:
            if name not in self._memory_mb:
                continue
            if home not in (None, name):
                fix = "give the others a trajectory of their own"
                raise BadInput(f"needs.{name}", f"its trajectory lives on {home}", fix)
            home = name
        return home

    def _check_memory(self, trajectory: TraceTrajectory) -> None:
        actions = (action for turn in trajectory.turns for action in turn.actions)
        used = {resource for action in actions for resource, _ in action.needs.amounts}
        for name, most in self._memory_mb.items():
            if name in used and trajectory.memory_mb > most:
                problem = f"{trajectory.memory_mb} can never fit: a node of {name} has {most}"
                raise BadInput("memory_mb", problem, "give it less, or enlarge the nodes")
