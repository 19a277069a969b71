"""How a kernel shares a node's cores among contending groups: weighted max-min fairness.

Each group gets the same amount per weight, the level, until some want no more; what they leave goes
to the rest. So the share of a contender is `min(wants, level * weight)`. This is what CFS and EEVDF
converge to with `cpu.weight` and `cpu.max`.
"""

from bisect import bisect_left, insort
from math import inf


class _Alike:
    """Contenders that stop wanting more at the same level."""

    __slots__ = ("count", "wants", "weight")

    def __init__(self) -> None:
        self.count = 0
        self.weight = 0
        self.wants = 0


class CoreDemand:
    """What all contenders of a node want together, in thousandths of a core.

    Sums are whole numbers, so coming and going leaves no trace. A level costs a look at every
    different want per weight, not at every contender.
    """

    __slots__ = ("_alike", "_ratios", "wants", "weight")

    def __init__(self) -> None:
        self.wants = 0
        self.weight = 0
        self._alike: dict[float, _Alike] = {}
        self._ratios: list[float] = []

    def add(self, weight: int, wants: int) -> None:
        ratio = wants / weight
        alike = self._alike.get(ratio)
        if alike is None:
            alike = self._alike[ratio] = _Alike()
            insort(self._ratios, ratio)
        self._change(alike, 1, weight=weight, wants=wants)

    def remove(self, weight: int, wants: int) -> None:
        ratio = wants / weight
        alike = self._alike[ratio]
        self._change(alike, -1, weight=-weight, wants=-wants)
        if alike.count == 0:
            del self._alike[ratio]
            del self._ratios[bisect_left(self._ratios, ratio)]

    def level(self, capacity: int) -> float:
        """What a unit of weight gets; infinite when every group gets what it wants."""
        if self.wants <= capacity:
            return inf
        weight = self.weight
        for ratio in self._ratios:
            alike = self._alike[ratio]
            if alike.wants * weight > capacity * alike.weight:
                break
            capacity -= alike.wants
            weight -= alike.weight
        return capacity / weight

    def _change(self, alike: _Alike, count: int, *, weight: int, wants: int) -> None:
        alike.count += count
        alike.weight += weight
        alike.wants += wants
        self.weight += weight
        self.wants += wants
