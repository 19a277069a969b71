"""How many cores this program may use at this moment.

A sandbox that is resized changes the affinity of everything inside, so a look costs a microsecond
and needs no help. `ARTANGRAM_UNITS` is the degree the action was started with: the cores may
become fewer, and come back, but more than that were never meant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

UNITS = "ARTANGRAM_UNITS"


def usable() -> int:
    """Cores this process may run on now."""
    return len(os.sched_getaffinity(0))


def degree(environ: Mapping[str, str]) -> int:
    """The most workers to have: as the action was told, else as many as the machine has cores."""
    told = environ.get(UNITS, "")
    return max(1, int(told)) if told.isdigit() else max(1, os.cpu_count() or 1)
