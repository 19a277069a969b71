"""A process that another process started, held by a pidfd so that it is never mistaken.

Its number may be given to another process as soon as it has ended; what is held here may not.
"""

import asyncio
import contextlib
import os
from signal import SIGKILL, pidfd_send_signal


class ForeignProcess:
    """Can be killed and waited for, as a child can. It is let go of when it has ended."""

    def __init__(self, pid: int) -> None:
        """Raises `ProcessLookupError` if it is no more."""
        self._pid = pid
        self._pidfd: int | None = os.pidfd_open(pid)

    def __repr__(self) -> str:
        return f"<ForeignProcess {self._pid}{'' if self._pidfd is not None else ', let go of'}>"

    def kill(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                pidfd_send_signal(self._pidfd, SIGKILL)

    async def wait(self) -> None:
        """Return when it has ended."""
        if self._pidfd is None:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pidfd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._pidfd)
        self.let_go()

    def let_go(self) -> None:
        """Leave it to itself."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
