"""A clone made ahead: it waits in its fresh namespaces for what it is to become.

Making namespaces and most mounts is a third of making a sandbox, and nothing of it depends on the
plan. A spare holds no descriptor but its own socket, belongs to no control group,
and dies with the zygote.
"""

from __future__ import annotations

import fcntl
import os
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_SEQPACKET, socketpair
from _socket import socket as RawSocket

from artangram.sandbox.inside import channel, linux, setup

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Live = Callable[[dict[str, Any], int], None]

LINE = 3


class Spare:
    """The zygote's side of one that waits."""

    def __init__(self, flags: int, stage: str, live: Live) -> None:
        ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
        self.flags = flags
        self.stage = stage
        self._line = ours
        self.pid = linux.clone(flags)
        if self.pid == 0:
            _wait(theirs.fileno(), stage, live)
        theirs.close()

    def become(self, plan: dict[str, Any], control: int) -> None:
        """Let it live by `plan`; `OSError` if it is gone."""
        try:
            channel.send(self._line, plan, [control])
        finally:
            self._line.close()


def _wait(line: int, stage: str, live: Live) -> None:
    """Never returns."""
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, linux.SIGKILL)
        # Not even until its plan comes may it keep open what others wait to see closed.
        line = fcntl.fcntl(line, fcntl.F_DUPFD_CLOEXEC, LINE + 1)
        os.dup2(line, LINE, inheritable=False)
        os.closerange(LINE + 1, 1 << 30)
        if not setup.in_child(lambda: setup.prepare(stage, own_proc=True, network=False)):
            return  # the next request for a sandbox meets the same error and reports it
        plan, fds = channel.receive(RawSocket(fileno=LINE))
        live(plan, fds[0])
    except (EOFError, OSError):
        pass  # it is not needed any more
    finally:
        os._exit(0)
