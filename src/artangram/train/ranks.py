"""A trainer that is several processes, seen from the run that owns them.

- Each order goes to all of them and is done when all have answered.
- When one ends, however that came, all are ended: those that are left would wait for it for ever.
  So are they when one refuses an order that the others may have carried out.
- When we die, they end: the connection is their only tie.
"""

import math
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from artangram.core.rollout.trajectory import Group
from artangram.link import BlockingLink, LinkEnded, Posted, ready
from artangram.train.learner import LearnerGone, TeacherLogprobs
from artangram.train.rankwire import (
    Begin,
    Order,
    RankDone,
    Restore,
    Save,
    SaveWeights,
    TrainStep,
    owner_terms,
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
        self._sockets: list[socket.socket] = []
        self._links: list[BlockingLink[None]] = []
        try:
            for _ in range(settings.processes):
                self._start()
            for sock in self._sockets:
                self._meet(sock)
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

    def step(
        self, groups: Sequence[Group], *, teachers: TeacherLogprobs | None = None
    ) -> StepMetrics:
        report = self._order(TrainStep(tuple(groups), dict(teachers or {}))).report
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
        for sock in self._sockets:
            sock.close()
        self._links.clear()
        self._meeting.cleanup()

    def _start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
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
        self._sockets.append(ours)

    def _meet(self, sock: socket.socket) -> None:
        """However long it takes until a process has imported what it needs."""
        try:
            self._links.append(BlockingLink.dialed(sock, owner_terms, patience_s=math.inf))
        except LinkEnded:
            raise self._gone(len(self._links)) from None

    def _order(self, order: Order) -> RankDone:
        self._last = self._asked([order] * len(self._processes))
        return self._last

    def _asked(self, orders: Sequence[Order]) -> RankDone:
        """The first process's answer, once all have answered."""
        if not self._links:
            raise LearnerGone("the trainer is closed")
        waiting = {rank: self._posted(rank, order) for rank, order in enumerate(orders)}
        first: RankDone | None = None
        while waiting:
            for rank in [rank for rank, posted in waiting.items() if posted.is_done]:
                done = self._heard(rank, waiting.pop(rank))
                first = done if rank == 0 else first
            if waiting:
                ready(self._links[rank] for rank in waiting)
        assert first is not None, "the first is one of them"
        return first

    def _posted(self, rank: int, order: Order) -> Posted[RankDone]:
        try:
            return self._links[rank].post(order, RankDone)
        except LinkEnded:
            raise self._gone(rank) from None

    def _heard(self, rank: int, posted: Posted[RankDone]) -> RankDone:
        try:
            return posted.result()
        except LinkEnded:
            raise self._gone(rank) from None
        except Exception:
            self.close()
            raise

    def _gone(self, rank: int) -> LearnerGone:
        self.close()
        return LearnerGone(f"process {rank} of the trainer ended; {self._log} may say why")
