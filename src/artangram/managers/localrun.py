"""A run under way on the node of this process, as its agent sees it."""

import asyncio

from artangram.managers.agent import Run, RunId, RunResult
from artangram.managers.runlimit import RunLimit
from artangram.sandbox.protocol import Sandbox


class LocalRun:
    """A run under way, and the cores it has (or will start with).

    Most are begun at once in a sandbox that waits for them; one that has to wait has a task.
    """

    __slots__ = (
        "cores",
        "ended",
        "id",
        "is_late",
        "is_told",
        "limit",
        "over",
        "run",
        "sandbox",
        "task",
    )

    def __init__(self, run: Run) -> None:
        self.run = run
        self.id = RunId(run.lease.action_id, run.lease.attempt)
        self.cores = run.command.cores if run.command is not None else ()
        self.sandbox: Sandbox | None = None
        self.ended: RunResult | None = None
        self.is_told = False
        #: Was it ended because its time limit is over?
        self.is_late = False
        self.limit: RunLimit | None = None
        self.task: asyncio.Task[None] | None = None
        #: Made by a caller that waits for its end.
        self.over: asyncio.Future[None] | None = None

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
        elif self.sandbox is not None:
            self.sandbox.end_command()
