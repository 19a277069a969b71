"""Exec a program that dies with its parent (PDEATHSIG)."""

from __future__ import annotations

import os

from artangram.sandbox.inside import linux

SIGTERM = 15


def main(owner: int, argv: list[str]) -> None:
    linux.prctl(linux.PR_SET_PDEATHSIG, SIGTERM)
    if os.getppid() != owner:
        os._exit(1)  # it ended before PDEATHSIG was set
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.execvp(argv[0], argv)
