"""What an action asks for: for each resource, the amounts it can run with.

- Amounts are whole units (cores, devices, calls); no floats in the books.
- At most one resource is elastic: along it the action runs faster on more units.
- Records here are already valid; `parse_needs` is the border.
"""

from collections.abc import Mapping

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.ids import Resource, ServiceId
from artangram.core.scheduling.speedup import MOST_UNITS, Speedup, parse_speedup

Amounts = tuple[int, ...]
"""Admissible amounts of one resource, ascending, never empty."""

MOST_CHOICES = 1 << 14
"""Of one need; each of them is weighed."""


class Needs(Struct, frozen=True, kw_only=True, cache_hash=True):
    """The admissible amounts of every resource an action uses, and which of them is elastic."""

    amounts: tuple[tuple[Resource, Amounts], ...]
    elastic: Resource | None = None
    speedup: Speedup | None = None
    service: ServiceId | None = None

    def of(self, resource: Resource) -> Amounts:
        """The admissible amounts of `resource`; empty when the action does not use it."""
        for name, amounts in self.amounts:
            if name == resource:
                return amounts
        return ()


def parse_needs(
    raw: object, *, elastic: object = None, speedup: object = None, service: object = None
) -> Needs:
    """Needs as written in a trace or a request. Raises `BadInput` that names the field."""
    fix = 'map resources to amounts, as in {"cpu": 1} or {"cpu": {"min": 1, "max": 8}}'
    if not isinstance(raw, Mapping) or not raw:
        raise BadInput("needs", f"{raw!r} is not a set of needs", fix)
    amounts = tuple((Resource(str(name)), _amounts(f"needs.{name}", raw[name])) for name in raw)
    if elastic is not None and elastic not in raw:
        raise BadInput("elastic", f"{elastic!r} is not among the needs", "name one of the needs")
    if elastic is None and speedup is not None:
        raise BadInput("speedup", "given without an elastic resource", 'add "elastic": "cpu"')
    if service is not None and not isinstance(service, str):
        raise BadInput("service", f"{service!r} is not a name", "give the service's name")
    return Needs(
        amounts=amounts,
        elastic=Resource(str(elastic)) if elastic is not None else None,
        speedup=parse_speedup(speedup) if speedup is not None else None,
        service=ServiceId(service) if service is not None else None,
    )


def _amounts(field: str, raw: object) -> Amounts:
    fix = 'give a whole number, {"min": a, "max": b} or {"choices": [1, 2, 4]}'
    if isinstance(raw, Mapping):
        if set(raw) == {"min", "max"}:
            low, high = _amount(f"{field}.min", raw["min"]), _amount(f"{field}.max", raw["max"])
            if low > high:
                raise BadInput(field, f"min {low} is above max {high}", "swap them")
            _check_number(field, high - low + 1, fix="narrow it to {most}, or name the choices")
            return tuple(range(low, high + 1))
        if set(raw) == {"choices"} and isinstance(raw["choices"], list | tuple) and raw["choices"]:
            _check_number(field, len(raw["choices"]), fix="name {most} at most")
            return tuple(sorted({_amount(f"{field}.choices", x) for x in raw["choices"]}))
        raise BadInput(field, f"{dict(raw)!r} is not an amount", fix)
    return (_amount(field, raw),)


def _check_number(field: str, number: int, *, fix: str) -> None:
    if number > MOST_CHOICES:
        problem = f"{number} amounts are too many to weigh"
        raise BadInput(field, problem, fix.format(most=MOST_CHOICES))


def _amount(field: str, raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise BadInput(field, f"{raw!r} is not a whole number", "amounts are whole units")
    if not 0 < raw <= MOST_UNITS:
        raise BadInput(field, f"{raw} is out of range", f"give 1 to {MOST_UNITS}")
    return raw
