"""The ways in which a run may go, by name."""

from collections.abc import Awaitable, Callable

from artangram.pipeline.asynchronous import asynchronous
from artangram.pipeline.oneoff import one_off
from artangram.pipeline.sync import synchronous
from artangram.pipeline.verbs import Verbs

LOOPS: dict[str, Callable[[Verbs], Awaitable[None]]] = {
    "asynchronous": asynchronous,
    "one-off": one_off,
    "synchronous": synchronous,
}
