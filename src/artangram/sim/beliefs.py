"""What the simulated client tells the scheduler about an action that has not run yet.

The simulator knows the truth; a scheduler never does. `learned` tells no work and no speed-up, but
what a live caller knows: kind, task and problem; `learned:kinds` leaves the problem out. `noisy`
tells a work that is off by a lognormal factor and one speed-up for everything. `exact` tells the
truth all the same: the ceiling of what can be learned.
"""

from random import Random
from typing import Protocol

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.scheduling.action import MOST_WORK_S
from artangram.core.scheduling.needs import Needs
from artangram.core.scheduling.speedup import DEFAULT
from artangram.observe.trace import TraceAction, TraceTrajectory

MOST_SIGMA = 10.0
"""Most guesses are off by thousands then; far more would be no number."""


class Beliefs(Protocol):
    """From the true action to what is said of it."""

    def needs(self, action: TraceAction) -> Needs: ...

    def work_s(self, action: TraceAction) -> float | None: ...

    def problem(self, trajectory: TraceTrajectory) -> str: ...

    def tokens(self, action: TraceAction) -> int | None: ...


class _Named:
    """Tells which problem a trajectory attempts, and not how many tokens a call will use."""

    def problem(self, trajectory: TraceTrajectory) -> str:
        return trajectory.problem

    def tokens(self, action: TraceAction) -> int | None:
        return None


class ExactBeliefs(_Named):
    """The truth."""

    def needs(self, action: TraceAction) -> Needs:
        return action.needs

    def work_s(self, action: TraceAction) -> float | None:
        return action.work_s

    def tokens(self, action: TraceAction) -> int | None:
        return action.tokens


class _Uncurved:
    """Needs without their true speed-up; equal needs share one object."""

    def __init__(self) -> None:
        self._known: dict[Needs, Needs] = {}

    def of(self, needs: Needs, *, is_wrong: bool) -> Needs:
        if needs.speedup is None:
            return needs
        told = self._known.get(needs)
        if told is None:
            told = structs.replace(needs, speedup=DEFAULT if is_wrong else None)
            self._known[needs] = told
        return told


class NoisyBeliefs(_Named):
    """Work off by exp(N(0, sigma)), and the same speed-up for every elastic action."""

    def __init__(self, sigma: float, random: Random) -> None:
        self._sigma = sigma
        self._random = random
        self._uncurved = _Uncurved()

    def needs(self, action: TraceAction) -> Needs:
        return self._uncurved.of(action.needs, is_wrong=True)

    def work_s(self, action: TraceAction) -> float | None:
        guess = action.work_s * self._random.lognormvariate(0.0, self._sigma)
        return min(guess, MOST_WORK_S)


class LearnedBeliefs(_Named):
    """Nothing: the scheduler learns from what has ended."""

    def __init__(self) -> None:
        self._uncurved = _Uncurved()

    def needs(self, action: TraceAction) -> Needs:
        return self._uncurved.of(action.needs, is_wrong=False)

    def work_s(self, action: TraceAction) -> float | None:
        return None


class KindBeliefs(LearnedBeliefs):
    """Not even the problem."""

    def problem(self, trajectory: TraceTrajectory) -> str:
        return ""


def beliefs(name: str, seed: int) -> Beliefs:
    """Beliefs by name: `learned`, `learned:kinds`, `noisy:SIGMA` or `exact`."""
    if name == "exact":
        return ExactBeliefs()
    if name == "learned":
        return LearnedBeliefs()
    if name == "learned:kinds":
        return KindBeliefs()
    base, colon, argument = name.partition(":")
    if base == "noisy":
        try:
            sigma = float(argument if colon else "1.0")
        except ValueError:
            sigma = -1.0
        if 0 <= sigma <= MOST_SIGMA:
            return NoisyBeliefs(sigma, Random(seed))
    raise BadInput(
        "estimates", f"{name!r} is unknown", "use learned, learned:kinds, noisy:1.0 or exact"
    )
