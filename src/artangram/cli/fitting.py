"""A trace file checked against the cluster it is to run on, while it is read.

An action that no node, device or quota could ever serve is a mistake in one of the two files, so
it is said with its line and its field before anything runs.
"""

import gzip
from collections.abc import Iterator
from math import inf
from pathlib import Path

from artangram.core.cluster import ClusterSpec, CpuSpec
from artangram.core.errors import BadInput
from artangram.core.forms import Forms
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
        with open_trace(path) as reader:
            self.name = reader.name
            self.train_s = reader.train_s

    def __repr__(self) -> str:
        return f"<FittingTrace {self._path}>"

    @property
    def trajectories(self) -> Iterator[TraceTrajectory]:
        with open_trace(self._path) as reader:
            for index, trajectory in enumerate(reader.trajectories):
                try:
                    self._check(trajectory)
                except BadInput as error:
                    raise BadFile(self._path, error, line=_line_of(self._path, index)) from None
                yield trajectory

    def _check(self, trajectory: TraceTrajectory) -> None:
        for nth, turn in enumerate(trajectory.turns):
            for index, action in enumerate(turn.actions):
                try:
                    self._forms.of(action.needs)
                except BadInput as error:
                    raise error.within(f"turns[{nth}].actions[{index}]") from None
        if trajectory.memory_mb > self._safe_mb:
            self._check_memory(trajectory)

    def _check_memory(self, trajectory: TraceTrajectory) -> None:
        actions = (action for turn in trajectory.turns for action in turn.actions)
        used = {resource for action in actions for resource, _ in action.needs.amounts}
        for name, most in self._memory_mb.items():
            if name in used and trajectory.memory_mb > most:
                problem = f"{trajectory.memory_mb} can never fit: a node of {name} has {most}"
                raise BadInput("memory_mb", problem, "give it less, or enlarge the nodes")


def _line_of(path: Path, index: int) -> int:
    """The line of a trajectory, counted from 0, behind the header; blank lines do not count."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        written = (number for number, line in enumerate(file, start=1) if not line.isspace())
        return next(number for nth, number in enumerate(written) if nth == index + 1)
