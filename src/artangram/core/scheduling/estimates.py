"""What is believed of an action before it runs: its work and how it speeds up.

- What the caller says is used; its work is corrected by how wrong its kind was before (in log
  space, so that halves and doubles weigh the same).
- What the caller does not say is learned from ended actions of the same kind: of work the mean,
  for whoever goes first delays the others by what is expected of it.
- Beliefs only rank and size; a wrong one costs time, never correctness.
"""

import math

from artangram.core.scheduling.action import MOST_WORK_S, Action
from artangram.core.scheduling.speedup import DEFAULT, Amdahl, Speedup

UNKNOWN_WORK_S = 1.0
"""Believed of a kind never seen: the order of a typical tool call."""

MEMORY = 32.0
"""After so many ended actions a kind's belief is a moving average of about as many."""

UNKNOWN_SPREAD = 1.0
"""How uncertain that is, and any belief about work that no caller stated until `DOUBTED_FOR` ended:
commands of one kind easily differ by a factor of e."""

DOUBTED_FOR = 4.0

TRUSTED_AFTER = 8
"""Fewer ended actions of a kind than this do not correct what a caller says of it."""

MOST_ERROR = 10.0
"""In log space. A caller who is further off has not told how long it takes, and must not spoil the
beliefs about its kind for long."""

RESIDUE = 0.05
"""Share of its estimate that is left, at the least, of an action that outlives it."""

CERTAIN = 0.1
"""Beliefs that are off by less than about this share are taken at their word."""

MOST_KINDS = 65_536
"""A caller who makes up a kind for every action teaches nothing; the oldest are forgotten then."""

REFIT_EVERY = 16
"""Ended actions between two fits of a kind's speed-up."""

DOUBT = 0.7
"""Deviation of the log of a kind's serial share around the default: a factor of two either way.
Durations of one kind differ so much that few of them say little about how it scales."""

_SERIAL_STEPS = [0.01, *(step / 50 for step in range(1, 51))]


class _KindBelief:
    """Moving averages of one kind."""

    __slots__ = ("bias", "count", "curve", "scaling", "square_error", "work_s")

    def __init__(self) -> None:
        self.count = 0
        self.work_s = 0.0
        #: Mean of log(work / the caller's estimate).
        self.bias = 0.0
        #: Mean square of log(work / what was believed of it).
        self.square_error = 0.0
        #: By number of units: how many ran so, and their mean log time per estimated work.
        self.scaling: dict[int, tuple[int, float]] = {}
        self.curve = DEFAULT


class Estimates:
    """Beliefs per kind, learned from ended actions."""

    def __init__(self) -> None:
        self._kinds: dict[str, _KindBelief] = {}

    def work_s(self, action: Action) -> float:
        """Believed duration on one unit."""
        kind = self._kinds.get(action.kind)
        if action.work_s is None:
            return kind.work_s if kind is not None else UNKNOWN_WORK_S
        if kind is None or kind.count < TRUSTED_AFTER:
            return action.work_s
        return action.work_s * math.exp(kind.bias)

    def spread(self, action: Action) -> float:
        """How far off beliefs about its kind were: the deviation of the log of the work."""
        kind = self._kinds.get(action.kind)
        count, square = (0, 0.0) if kind is None else (kind.count, kind.square_error)
        if action.work_s is None:
            doubt = DOUBTED_FOR / (DOUBTED_FOR + count)
            square += doubt * (UNKNOWN_SPREAD * UNKNOWN_SPREAD - square)
        return math.sqrt(square)

    def curve(self, action: Action) -> Speedup:
        """Believed speed-up along the elastic resource."""
        if action.needs.speedup is not None:
            return action.needs.speedup
        kind = self._kinds.get(action.kind)
        return DEFAULT if kind is None else kind.curve

    def speed(self, action: Action, units: float) -> float:
        """How much faster one with an elastic resource is believed to run on `units` of it."""
        return self.curve(action).speed(units)

    def observe(self, action: Action, *, believed_s: float, run_s: float, units: float) -> None:
        """An action ended well after `run_s` on so many units of its elastic resource on average.

        `units` says nothing of an action that has no elastic resource; `believed_s` was its work
        on one unit, as believed when it was queued.
        """
        if run_s <= 0.0:
            return
        kind = self._kinds.get(action.kind)
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            kind = self._kinds[action.kind] = _KindBelief()
        kind.count += 1
        gain = 1.0 / min(kind.count, MEMORY)
        work_s, log_work = run_s, math.log(run_s)
        if action.needs.elastic is not None:
            speed = self.curve(action).speed(units)
            work_s *= speed
            log_work += math.log(speed)  # Of extremes, the product may be no number.
        kind.work_s += gain * (min(work_s, MOST_WORK_S) - kind.work_s)
        if believed_s > 0.0:
            error = _bounded(log_work - math.log(believed_s))
            kind.square_error += gain * (error * error - kind.square_error)
        stated = math.log(action.work_s) if action.work_s else None
        if stated is not None:
            kind.bias += gain * (_bounded(log_work - stated) - kind.bias)
        if action.needs.elastic is not None and action.needs.speedup is None:
            _observe_scaling(kind, round(units), math.log(run_s) - (stated or 0.0))


def _bounded(log_error: float) -> float:
    return max(-MOST_ERROR, min(MOST_ERROR, log_error))


def residual_s(work_s: float, spread: float, done_s: float) -> float:
    """What is believed to be left of work of about `work_s` after `done_s` of it.

    The mean of what remains of a lognormal with median `work_s`: the more uncertain the belief, the
    more is left of an action that has outlived it. Certain beliefs leave their rest.
    """
    rest = max(work_s - done_s, RESIDUE * work_s)
    if spread < CERTAIN or done_s <= 0.0 or work_s <= 0.0:
        return rest
    z = (math.log(done_s) - math.log(work_s)) / spread
    beyond = _upper_tail(z)
    if beyond < 1e-9:
        return max(rest, done_s)
    mean = work_s * math.exp(spread * spread / 2.0)
    return max(rest, mean * _upper_tail(z - spread) / beyond - done_s)


def _upper_tail(z: float) -> float:
    """The share of a normal distribution above `z`."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def _observe_scaling(kind: _KindBelief, units: int, log_time: float) -> None:
    count, mean = kind.scaling.get(units, (0, 0.0))
    count += 1
    kind.scaling[units] = (count, mean + (log_time - mean) / min(count, MEMORY))
    if kind.count % REFIT_EVERY == 0:
        kind.curve = _fitted(kind.scaling, max(kind.square_error, CERTAIN * CERTAIN))


def _fitted(scaling: dict[int, tuple[int, float]], variance: float) -> Amdahl:
    """The likeliest serial share, given how the mean log time falls with the units."""
    points = [
        (units, min(count, MEMORY) / variance, mean) for units, (count, mean) in scaling.items()
    ]
    return Amdahl(min(_SERIAL_STEPS, key=lambda serial: _unlikeliness(serial, points)))


def _unlikeliness(serial: float, points: list[tuple[int, float, float]]) -> float:
    curve = Amdahl(serial)
    # What is left after the curve is explained should be the same at every size: the mean work.
    rest = [(weight, mean + math.log(curve.speed(units))) for units, weight, mean in points]
    mean_work = sum(w * y for w, y in rest) / sum(w for w, _ in rest)
    misfit = sum(w * (y - mean_work) ** 2 for w, y in rest)
    return misfit + (math.log(serial / DEFAULT.serial) / DOUBT) ** 2
