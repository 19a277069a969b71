"""What ended actions say about the next one, from the general to the particular.

- A *cell* holds what was seen of one kind, of one task of it, or of one problem of that task. Its
  belief is that of its parent plus every duration seen in the cell itself.
- How many durations the parent is worth, and how far apart durations of one cell are, is learned
  for each kind and level: by which of a few habits would have foretold best what came
  (`CellHabits`).
- An action that was stopped says that it takes longer than it had; so does one that still runs.
- Old durations fade, so one that lies far off is soon forgotten. Memory is bounded.
"""

import math

from artangram.core.ids import ActionId
from artangram.core.scheduling.distribution import (
    LOG_STEP,
    LOGS,
    NUM_BINS,
    STEPS,
    Distribution,
    bin_of,
)

MEMORY = 128.0
"""When a cell has seen twice as many durations as this, each of them counts half from then on."""

LEARNING = 16.0
"""Habits are learned from the first 16 durations of a cell, and then from every sixteenth: more
hardly tells habits apart."""

GROWTH = 1.5
"""A belief is made anew when its cell has seen this many times as much as before: a few times for
a hundred durations, and at once for the first ones."""

UNKNOWN_MEDIAN_S, UNKNOWN_SPREAD = 1.0, 2.0
"""Believed of a kind never seen: a typical tool call, give or take a factor of seven."""

_WEIGHTS = (0.25, 1.0, 4.0, 16.0)
"""How many durations of its own the belief of its parent may be worth to a cell."""

_WIDTHS = (0.1, 0.3, 0.8)
"""How far apart durations of one cell may be: deviations of the log."""

_HABITS = tuple((weight, width) for weight in _WEIGHTS for width in _WIDTHS)

_FADING = 0.98
"""What is left of the score of a habit with every duration seen."""

_HEAD_START = 1.0
"""The score of the habit that a kind begins with: a factor of e in the chance of one duration."""

_SURPRISE = 1e-6
"""The least chance a habit is held to have given to what came."""

_FAINT = 0.01
"""Counts below this are forgotten."""


def _bump(width: float) -> list[float]:
    """How one duration spreads over the bins around its own: from the farthest below on."""
    reach = max(1, math.ceil(2.5 * width / LOG_STEP))
    spread = math.hypot(width, LOG_STEP / 2.0)
    heights = [math.exp(-0.5 * (k * LOG_STEP / spread) ** 2) for k in range(-reach, reach + 1)]
    total = sum(heights)
    return [height / total for height in heights]


_BUMPS = {width: _bump(width) for width in _WIDTHS}


def lognormal(median_s: float, spread: float) -> list[float]:
    """Weights of all bins for a duration that is off by a factor of e^`spread` either way."""
    middle = math.log(median_s)
    return [math.exp(-0.5 * ((log - middle) / spread) ** 2) for log in LOGS]


_UNKNOWN = Distribution(lognormal(UNKNOWN_MEDIAN_S, UNKNOWN_SPREAD))


class CellHabits:
    """How the cells of one kind and level relate to their parents."""

    __slots__ = ("_scores", "weight", "width")

    def __init__(self, weight: float, width: float) -> None:
        self._scores = [_HEAD_START * (habit == (weight, width)) for habit in _HABITS]
        #: How many durations the parent is worth.
        self.weight = weight
        #: How far apart durations of one cell are.
        self.width = width

    def learn(self, seen: dict[int, float], count: float, *, index: int, parent: float) -> None:
        """A duration in bin `index` came; the parent had given it the chance `parent`."""
        near = {width: _height(seen, index, bump) for width, bump in _BUMPS.items()}
        scores = [
            _FADING * score
            + math.log(_SURPRISE + (weight * parent + near[width]) / (weight + count))
            for score, (weight, width) in zip(self._scores, _HABITS, strict=True)
        ]
        self._scores = scores
        self.weight, self.width = _HABITS[scores.index(max(scores))]


def _height(seen: dict[int, float], index: int, bump: list[float]) -> float:
    """What durations in `seen` add to bin `index`."""
    reach = len(bump) // 2
    return sum(
        count * bump[index - at + reach]
        for at, count in seen.items()
        if -reach <= index - at <= reach
    )


class Cell:
    """What was seen of one kind (which has no parent), of one task or of one problem."""

    __slots__ = ("_belief", "_habits", "_next", "_reached", "_seen", "count", "parent")

    def __init__(self, parent: "Cell | None", habits: CellHabits) -> None:
        self.parent = parent
        #: How many durations were seen, faded ones for less.
        self.count = 0.0
        self._habits = habits
        self._seen: dict[int, float] = {}
        #: The bin that each action of the cell has reached that runs for long.
        self._reached: dict[ActionId, int] = {}
        self._belief: Distribution | None = None
        #: With this count the belief is made anew.
        self._next = 1.0

    def belief(self) -> Distribution:
        """How long the next action of this cell takes."""
        if self._belief is not None:
            return self._belief
        parent = _UNKNOWN if self.parent is None else self.parent.belief()
        if not self._seen and not self._reached:
            return parent
        self._belief = self._mixed(parent)
        return self._belief

    def add(self, index: int) -> bool:
        """A duration in bin `index` was seen. Does that change the belief?"""
        count = self.count
        if 0.0 < count < LEARNING or count % LEARNING < 1.0 <= count:
            parent = _UNKNOWN if self.parent is None else self.parent.belief()
            self._habits.learn(self._seen, count, index=index, parent=parent.chance(index))
        self._seen[index] = self._seen.get(index, 0.0) + 1.0
        return self._counted()

    def add_longer(self, attained_s: float) -> bool:
        """An action would have taken longer than this. Does that change the belief?"""
        weights = [0.0] * NUM_BINS
        belief = self.belief()
        weights[belief.first : belief.first + len(belief.chances)] = belief.chances
        for index, mass in _beyond(weights, bin_of(attained_s)).items():
            self._seen[index] = self._seen.get(index, 0.0) + mass
        return self._counted()

    def reach(self, action_id: ActionId, attained_s: float) -> bool:
        """An action has run for so long and still runs. Does that change the belief of others?"""
        index = bin_of(attained_s) // STEPS * STEPS
        if self._reached.get(action_id, 0) >= index:
            return False
        self._reached[action_id] = index
        self._belief = None
        return True

    def leave(self, action_id: ActionId) -> None:
        """An action runs no longer."""
        if self._reached.pop(action_id, None) is not None:
            self._belief = None

    def _counted(self) -> bool:
        """One more duration is in `_seen`. Is the belief to be made anew?"""
        self.count += 1.0
        if self.count >= 2.0 * MEMORY:
            self._seen = {at: 0.5 * n for at, n in self._seen.items() if n > _FAINT}
            self.count = self._next = sum(self._seen.values())
        if self.count < self._next:
            return False
        self._next = max(self.count + 1.0, GROWTH * self.count)
        self._belief = None
        return True

    def _mixed(self, parent: Distribution) -> Distribution:
        weights = [0.0] * NUM_BINS
        trust = self._habits.weight
        weights[parent.first : parent.first + len(parent.chances)] = [
            trust * chance for chance in parent.chances
        ]
        bump = _BUMPS[self._habits.width]
        reach = len(bump) // 2
        for index, count in self._seen.items():
            for at, height in enumerate(bump, index - reach):
                if 0 <= at < NUM_BINS:
                    weights[at] += count * height
        for reached in self._reached.values():
            for at, mass in _beyond(weights, reached).items():
                weights[at] += mass
        return Distribution(weights)


def _beyond(weights: list[float], index: int) -> dict[int, float]:
    """One duration in bin `index` or later, spread as `weights` are there."""
    total = sum(weights[index:])
    if total <= 0.0:
        return {min(NUM_BINS - 1, index + STEPS): 1.0}
    return {at: mass / total for at, mass in enumerate(weights[index:], index) if mass > 0.0}
