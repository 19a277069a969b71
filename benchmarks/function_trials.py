"""The functions that `artangram bench functions` calls in workers.

Not in `artangram_bench`: a worker that imports that package would import every benchmark.
"""

import os
import random
import time

from artangram.functions.function import function


@function
def echo(value: int) -> int:
    """What it was given."""
    return value


@function
def nap(run_s: float, *, slow: float, share: float, wave: int) -> bool:
    """Sleeps for `run_s`, in `share` of all workers `slow` times as long. Was it slow?

    Which workers are slow changes with `wave`, as neighbours do, so that ending a slow worker
    cures nothing.
    """
    is_slow = random.Random(f"{os.environ['ARTANGRAM_WORKER']} {wave}").random() < share
    time.sleep(run_s * (slow if is_slow else 1))
    return is_slow


hedged_nap = function(name="hedged nap", idempotent=True)(nap.code)


@function
def identify(value: int, run_s: float) -> tuple[int, int, int]:
    """What it was given, its worker's process and that one's parent, after `run_s`."""
    time.sleep(run_s)
    return value, os.getpid(), os.getppid()
