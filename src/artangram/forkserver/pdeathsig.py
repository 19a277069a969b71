"""Tie a process to its parent with the kernel's PDEATHSIG.

`sandbox.inside` and `envs.elastictest` have their own: they run where this package is absent.
"""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which forked it, ends; exit if it has."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os._exit(1)
