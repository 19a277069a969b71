"""How many files init and its commands may have open."""

# ruff: noqa: SIM105 - `contextlib` would be imported into every sandbox

from __future__ import annotations

import resource

MANY_FILES = 1 << 20
"""What kernels allow to a process at the most, unless told otherwise."""


def allow_more_files() -> None:
    """Let this process have as many open files as it may allow itself, if it comes to that.

    Descriptors that wait in sockets count for all of one user. A program may have as many there
    as it may have open, and those of one more message with each process that waits to send one:
    with no more than that allowed to init, the kernel would keep it from answering.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, MANY_FILES)))
    except (ValueError, OSError):
        pass  # only root may have more than is allowed already


def take_all_files() -> int:
    """From now on have what `allow_more_files` allowed; returns what a command may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft // 2
