"""A trainer that is several processes, seen from the run that owns them.

- Each order goes to all of them and is done when all have answered.
- When one ends, however that came, all are ended: those that are left would wait for it for ever.
  So are they when one refuses an order that the others may have carried out.
- When we die, they end: the connection is their only tie.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from tempfile import TemporaryDirectory

from artangram.core.errors import BadInput
from artangram.core.rollout.trajectory import Group
from artangram.train.learner import LearnerGone
from artangram.train.rankwire import (
    Begin,
    Order,
    RankDone,
    RankRefused,
    Restore,
    Save,
    SaveWeights,
    TrainStep,
    answer_of,
    encode,
)
from artangram.train.settings import TrainSettings
from artangram.train.tally import StepMetrics


class Ranks:
    """See `learner.Learner`. Owns the processes that it starts."""

    def __init__(self, model: Path, settings: TrainSettings, *, seed: int, log: Path) -> None:
        """Start them; what they have to say beside their answers goes to the file `log`."""
        self._log = log
        self._meeting = TemporaryDirectory(prefix="artangram-ranks-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._owners: list[Connection] = []
        try:
            for _ in range(settings.processes):
                self._start()
            self._last = self._asked(
                [
                    Begin(
                        model=str(model.absolute()),
                        settings=settings,
                        seed=seed,
                        rank=rank,
                        meeting=f"{self._meeting.name}/meeting",
                    )
                    for rank in range(settings.processes)
                ]
            )
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Ranks: {len(self._processes)} processes at version {self.version}>"

    @property
    def version(self) -> int:
        return self._last.version

    @property
    def max_context(self) -> int:
        return self._last.max_context

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._processes)

    def step(self, groups: Sequence[Group]) -> StepMetrics:
        report = self._order(TrainStep(tuple(groups))).report
        assert report is not None, "every step has one"
        return report

    def save(self, directory: Path) -> None:
        self._order(Save(str(directory.absolute())))

    def save_weights(self, directory: Path) -> None:
        self._order(SaveWeights(str(directory.absolute())))

    def restore(self, directory: Path) -> None:
        self._order(Restore(str(directory.absolute())))

    def close(self) -> None:
        """End all of them; nothing that was saved is lost by that."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for owner in self._owners:
            owner.close()
        self._owners.clear()
        self._meeting.cleanup()

    def _start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        ours, theirs = Pipe()
        with theirs, self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "artangram.train.rank", str(theirs.fileno())],
                # They are all here, whatever this machine's name is said to be.
                env={"GLOO_SOCKET_IFNAME": "lo", **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._processes.append(process)
        self._owners.append(ours)

    def _order(self, order: Order) -> RankDone:
        self._last = self._asked([order] * len(self._processes))
        return self._last

    def _asked(self, messages: Sequence[Begin | Order]) -> RankDone:
        """The first process's answer, once all have answered."""
        waiting = {owner: rank for rank, owner in enumerate(self._owners)}
        if not waiting:
            raise LearnerGone("the trainer is closed")
        first: RankDone | None = None
        for rank, message in enumerate(messages):
            self._tell(rank, message)
        while waiting:
            for owner in wait(list(waiting)):
                assert isinstance(owner, Connection)
                rank = waiting.pop(owner)
                done = self._heard(rank)
                first = done if rank == 0 else first
        assert first is not None, "the first is one of them"
        return first

    def _tell(self, rank: int, message: Begin | Order) -> None:
        try:
            self._owners[rank].send_bytes(encode(message))
        except OSError as error:
            raise self._gone(rank) from error

    def _heard(self, rank: int) -> RankDone:
        try:
            answer = answer_of(self._owners[rank].recv_bytes())
        except (EOFError, OSError) as error:
            raise self._gone(rank) from error
        if isinstance(answer, RankDone):
            return answer
        self.close()
        if isinstance(answer, RankRefused):
            raise BadInput(answer.field, answer.problem, answer.fix)
        raise OSError(answer.errno, answer.problem)

    def _gone(self, rank: int) -> LearnerGone:
        self.close()
        return LearnerGone(f"process {rank} of the trainer ended; {self._log} may say why")
