"""Functions for workers to run. Module-level and importable, as every function has to be."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from artangram.functions import function


class Point:
    """Something msgpack cannot hold."""

    def __init__(self, x: int) -> None:
        self.x = x


@function
def add(a: int, b: int = 1) -> int:
    return a + b


@function
def moved(point: Point) -> Point:
    return Point(point.x + 1)


@function
def fail(why: str) -> None:
    raise ValueError(why)


@function
def leave() -> None:
    sys.exit("so long")


@function
def unsendable() -> object:
    return lambda: None


@function
def worker() -> tuple[int, str]:
    return os.getpid(), os.environ["ARTANGRAM_WORKER"]


@function
def draw() -> float:
    return random.random()


@function
def doubled(data: bytes) -> bytes:
    print("what a function prints does not mix with its answer")
    return data * 2


@function
def die(times: int, folder: str) -> int:
    """Kills its worker the first `times` times; then says how often it was called."""
    mark = Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}"
    mark.touch()
    calls = len(list(Path(folder).iterdir()))
    if calls <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return calls


@function
def begin_and_wait(folder: str) -> None:
    """Starts a process of its own and never ends; leaves both process ids."""
    child = subprocess.Popen(["sleep", "600"])
    pids = Path(folder) / "pids.part"
    pids.write_text(f"{os.getpid()} {child.pid}")
    pids.rename(Path(folder) / "pids")
    child.wait()


@function(idempotent=True)
def stuck_once(folder: str) -> int:
    """The first call in a folder never ends; others answer at once."""
    calls = len(list(Path(folder).iterdir()))
    (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    if calls == 0:
        time.sleep(600)
    return os.getpid()


@function(idempotent=True)
def stuck_until_dead(folder: str) -> int:
    """The first call in a folder never ends; others answer when it is dead."""
    begun = list(Path(folder).iterdir())
    if not begun:
        (Path(folder) / str(os.getpid())).touch()
        time.sleep(600)
    while os.path.exists(f"/proc/{begun[0].name}"):
        time.sleep(0.005)
    return os.getpid()


@function(idempotent=True)
def wait_for(path: str) -> int:
    """Waits until a file is there."""
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


wait_alone = function(name="wait alone")(wait_for.code)
"""The same, but two copies of a call must not run at once."""


@function(memory_mb=8)
def hungry(mb: int) -> int:
    return len(bytearray(mb << 20))


def squared(number: int) -> int:
    return number * number


shadowed = squared


def squared(number: int) -> int:  # type: ignore[no-redef]
    return number**3
