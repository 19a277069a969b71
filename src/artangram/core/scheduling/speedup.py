"""How much faster an action runs on more units of its elastic resource.

A speed-up is a pure function of the number of units, relative to one unit: `speed(1) == 1` for
`Amdahl` and `Power`. A `Table` is interpolated between its points and flat outside of them.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from artangram.core.errors import BadInput


class Amdahl(Struct, frozen=True, tag="amdahl"):
    """A serial share of the work never gets faster."""

    serial: float

    def speed(self, units: float) -> float:
        return 1.0 / (self.serial + (1.0 - self.serial) / units)


class Power(Struct, frozen=True, tag="power"):
    """Speed grows as a power of the units."""

    exponent: float

    def speed(self, units: float) -> float:
        return float(units**self.exponent)


class Table(Struct, frozen=True, tag="table"):
    """Measured speeds at some numbers of units, ascending."""

    points: tuple[tuple[int, float], ...]

    def speed(self, units: float) -> float:
        before = self.points[0]
        if units <= before[0]:
            return before[1]
        for after in self.points[1:]:
            if units <= after[0]:
                share = (units - before[0]) / (after[0] - before[0])
                return before[1] + share * (after[1] - before[1])
            before = after
        return before[1]


Speedup = Amdahl | Power | Table

MOST_UNITS = 1 << 20
"""A larger amount is a typing error: no machine has it, and a range that wide would fill memory."""

LEAST_SPEED, MOST_SPEED = 1e-3, 1e6
"""Of a table; beyond, a work of seconds would take for ever, or no time."""

DEFAULT = Amdahl(0.1)
"""Believed of an elastic kind until its runs say otherwise: most test suites scale about so."""


def parse_speedup(raw: object) -> Speedup:
    """The speed-up written as `{"amdahl": s}`, `{"power": p}` or `{"table": {"units": speed}}`."""
    fix = 'write one of {"amdahl": 0.05}, {"power": 0.8}, {"table": {"1": 1.0, "2": 1.9}}'
    if not isinstance(raw, Mapping) or len(raw) != 1:
        raise BadInput("speedup", f"{raw!r} is not one speed-up", fix)
    (name, value), *_ = raw.items()
    match name:
        case "amdahl":
            return Amdahl(_share("speedup.amdahl", value))
        case "power":
            return Power(_share("speedup.power", value))
        case "table":
            return _table(value)
    raise BadInput("speedup", f"unknown form {name!r}", fix)


def _share(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadInput(field, f"{value!r} is not between 0 and 1", "give a number from 0 to 1")
    return float(value)


def _table(raw: object) -> Table:
    fix = 'map numbers of units to speeds, as in {"1": 1.0, "4": 3.1}'
    if not isinstance(raw, Mapping) or not raw:
        raise BadInput("speedup.table", f"{raw!r} is not a table", fix)
    points = []
    for units, speed in raw.items():
        written = str(units)[:20]  # More digits are no count, and may be too many to be a number.
        is_count = written.isdecimal() and 0 < int(written) <= MOST_UNITS
        is_number = isinstance(speed, int | float) and not isinstance(speed, bool)
        is_speed = is_number and LEAST_SPEED <= speed <= MOST_SPEED
        if not (is_count and is_speed and written == str(int(written))):
            raise BadInput("speedup.table", f"{written!r}: {speed!r} is not units: speed", fix)
        points.append((int(written), float(speed)))
    return Table(tuple(sorted(points)))
