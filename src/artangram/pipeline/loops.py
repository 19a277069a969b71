"""The ways in which a run may go, by name."""

from artangram.pipeline.asynchronous import asynchronous
from artangram.pipeline.oneoff import one_off
from artangram.pipeline.protocol import Loop
from artangram.pipeline.sync import synchronous

LOOPS: dict[str, Loop] = {
    "asynchronous": asynchronous,
    "areal": asynchronous,
    "one-off": one_off,
    "synchronous": synchronous,
}
