"""How much of something was in use over time, in a bounded number of bins.

The bins double in width whenever time runs past the last one, so a day and a second cost the same.
"""

from math import ceil

BINS = 512


class Timeline:
    """The integral of units in use, by bin."""

    __slots__ = ("_bins", "_units", "_updated_at", "bin_s", "capacity", "unit_s")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.bin_s = 1.0
        self.unit_s = 0.0
        self._bins = [0.0] * BINS
        self._units = 0.0
        self._updated_at = 0.0

    def add(self, units: float, now: float) -> None:
        """From `now` on, `units` more (or fewer) are in use."""
        self._advance(now)
        self._units += units

    def shares(self, until: float) -> list[tuple[float, float]]:
        """Times and the share of the capacity in use around them, up to `until`."""
        self._advance(until)
        shares = []
        for index in range(ceil(until / self.bin_s)):
            begin = index * self.bin_s
            width_s = min(self.bin_s, until - begin)  # Only a part of the last bin is over.
            shares.append((begin + width_s / 2, self._bins[index] / (width_s * self.capacity)))
        return shares

    def mean_share(self, until: float) -> float:
        """The share of the capacity in use on average up to `until`."""
        self._advance(until)
        return self.unit_s / (self.capacity * until) if until > 0 else 0.0

    def _advance(self, now: float) -> None:
        begin, units = self._updated_at, self._units
        self._updated_at = now
        while now > self.bin_s * BINS:
            self._widen()
        if abs(units) < 1e-9 or now <= begin:
            return
        self.unit_s += units * (now - begin)
        index = int(begin / self.bin_s)
        while begin < now:
            end = min(now, (index + 1) * self.bin_s)
            self._bins[index] += units * (end - begin)
            begin = end
            index += 1

    def _widen(self) -> None:
        pairs = zip(self._bins[0::2], self._bins[1::2], strict=True)
        self._bins = [a + b for a, b in pairs] + [0.0] * (BINS // 2)
        self.bin_s *= 2
