"""Runs a function in a child process and says so if the child never got to its end.

A test module may end the interpreter with any exit code while it is collected, zero included. The
exit code counts only if the child also said that it had finished.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from .process import described, die_with

UNFINISHED = 3
"""pytest's own code for an internal error."""
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def guarded(run: Callable[[], int]) -> int:
    """The exit code of `run`, or `UNFINISHED`; in the child, returns what `run` does."""
    heard, said = os.pipe()
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(heard)
        die_with(guard)
        code = run()
        sys.stdout.flush()
        os.write(said, bytes([code & 0xFF]))  # as the kernel would
        return code
    os.close(said)
    status = _wait(child)
    # Processes that the child left may still hold the other end: never wait for it.
    os.set_blocking(heard, False)
    try:
        finished = os.read(heard, 1)
    except BlockingIOError:
        finished = b""
    os.close(heard)
    if finished:
        return finished[0]
    print(f"the run was cut off before it was over: {described(status)}", file=sys.stderr)
    return UNFINISHED


def _wait(child: int) -> int:
    def forward(signum: int, _frame: object) -> None:
        # From a terminal the child has got it already, with its whole process group.
        if signum != signal.SIGINT or not sys.stdin.isatty():
            os.kill(child, signum)

    for signum in FORWARDED:
        signal.signal(signum, forward)
    return os.waitpid(child, 0)[1]
