"""What live coding agents do: plans of trajectories, and the programs that carry them out.

- A trajectory sets its sandbox up with a first small Python tool, thinks (sleeps) and runs further
  tools in turns, and ends with a real pytest suite that can use all cores.
- It has as many turns as one of the simulator's `coding` family, and its times are a tenth of
  theirs, so that a run ends today. Turns and suites are drawn from equal slices of their
  distributions: a batch of eight then looks like a large one.
- The gain of leasing cores per action depends on how much of its life a trajectory acts and does
  not think, so there are two duties; `docs/baselines.md` says where they come from.
"""

import random
import sys
from math import exp
from pathlib import Path
from statistics import NormalDist
from time import process_time

from msgspec import Struct

from artangram.envs.elastictest import command, one_file
from artangram.sandbox.protocol import HostImage

TOOL_S, SUITE_S = 0.042, 3.0
"""Medians, in seconds of one core."""
THINK_SIGMA, TOOL_SIGMA, SUITE_SIGMA = 0.6, 1.2, 0.93
TURNS_SIGMA, MOST_TURNS = 0.56, 40
LONGEST_S = 15.0
TEST_S = 0.15
"""One test of a suite."""

_BURN = "sum(i * i for i in range({loops}))"
_TEST = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_one(number):
    assert {burn} >= 0
"""


class Duty(Struct, frozen=True, kw_only=True):
    """How long trajectories think."""

    name: str
    think_s: float
    """Median."""


DUTIES = {
    duty.name: duty
    for duty in (
        # Acts for a quarter of its life on a core of its own, as the family's default does.
        Duty(name="family", think_s=1.0),
        # Acts for 47 % of it, as ARL-Tangram measured in production.
        Duty(name="paper", think_s=0.4),
    )
}


class Plan(Struct, frozen=True, kw_only=True):
    """What one trajectory will do: act, think, act, ..., think, then the suite."""

    tools: tuple[float, ...]
    """CPU seconds."""
    thinks: tuple[float, ...]
    """After each tool."""
    tests: int


def plans(duty: Duty, *, count: int, turns: float, rng: random.Random) -> list[Plan]:
    """A batch of trajectories with the given median number of turns."""
    lengths = _slices(rng, turns, sigma=TURNS_SIGMA, count=count)
    suites = _slices(rng, SUITE_S, sigma=SUITE_SIGMA, count=count)
    return [
        _plan(duty, round(min(MOST_TURNS, max(1.0, length))), min(LONGEST_S, suite_s), rng=rng)
        for length, suite_s in zip(lengths, suites, strict=True)
    ]


def _plan(duty: Duty, turns: int, suite_s: float, *, rng: random.Random) -> Plan:
    tools = [min(LONGEST_S, TOOL_S * rng.lognormvariate(0, TOOL_SIGMA)) for _ in range(turns)]
    return Plan(
        tools=tuple(tools),
        thinks=tuple(duty.think_s * rng.lognormvariate(0, THINK_SIGMA) for _ in tools),
        tests=max(1, round(suite_s / TEST_S)),
    )


def _slices(rng: random.Random, median: float, *, sigma: float, count: int) -> list[float]:
    """Lognormal values, one from each of `count` equally probable slices, in random order."""
    normal = NormalDist(0.0, sigma)
    # Inside a slice the place is drawn, too, but for its ends: the outermost are infinite.
    shares = [(index + rng.uniform(0.01, 0.99)) / count for index in range(count)]
    rng.shuffle(shares)
    return [median * exp(normal.inv_cdf(share)) for share in shares]


class SuiteFiles:
    """The suites and programs that sandboxes see, sized for this machine's speed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loops_per_s = _loops_per_s()
        self._program = folder / "elastictest.pyz"
        self._program.write_bytes(one_file())
        folder.chmod(0o755)  # The users of sandboxes read it.
        self._program.chmod(0o644)

    @property
    def image(self) -> HostImage:
        """The host's programs, this interpreter with pytest, and the suites."""
        homes = {str(Path(home).resolve()) for home in (sys.prefix, sys.base_prefix)}
        return HostImage(also=(str(self._folder), *sorted(homes)))

    def tool(self, work_s: float) -> list[str]:
        """A small Python program that works and leaves a file."""
        burn = _BURN.format(loops=round(work_s * self._loops_per_s))
        return [sys.executable, "-I", "-S", "-c", f"open('notes', 'a').write(str({burn}))"]

    def suite(self, tests: int) -> list[str]:
        """A pytest suite that spreads over the cores it has."""
        path = self._folder / f"test_{tests}.py"
        if not path.exists():
            burn = _BURN.format(loops=round(TEST_S * self._loops_per_s))
            path.write_text(_TEST.format(tests=tests, burn=burn))
            path.chmod(0o644)
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(self._folder)]
        return command([*options, str(path)], python=sys.executable, program=str(self._program))


def _loops_per_s() -> float:
    """How fast this machine counts, the best of some tries: others may be using it."""
    loops = 200_000
    best = min(_burn_s(loops) for _ in range(7))
    return loops / best


def _burn_s(loops: int) -> float:
    began_at = process_time()
    sum(i * i for i in range(loops))
    return process_time() - began_at
