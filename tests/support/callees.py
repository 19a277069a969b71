"""What the tests of calls call: found by name in other processes."""

import os
import time
from pathlib import Path
from typing import Any


def add(one: int, other: int) -> int:
    return one + other


def pid() -> int:
    return os.getpid()


def fail() -> None:
    raise ValueError("not like this")


class Scale:
    """A model of one weight."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def predict(self, payloads: list[Any]) -> list[Any]:
        if "die" in payloads:
            os._exit(9)
        return [self.factor * payload for payload in payloads]


def scale(files: tuple[str, ...], *, factor: float, load_s: float = 0.0) -> Scale:
    time.sleep(load_s)
    return Scale(factor)


class Weighty(Scale):
    """The same with weights that it reads, and memory that it needs while it runs."""

    def __init__(self, factor: float, files: tuple[str, ...]) -> None:
        super().__init__(factor)
        self.weights = [Path(file).read_bytes() for file in files]

    def predict(self, payloads: list[Any]) -> list[Any]:
        scratch = bytearray(64 << 20)
        assert len(scratch)
        return super().predict(payloads)


def weighty(files: tuple[str, ...], *, factor: float) -> Scale:
    return Weighty(factor, files)
