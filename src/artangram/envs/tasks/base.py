"""What the demo's tasks have in common: a cluster, a job, and problems of two kinds.

Every fifth problem is held out. A task for training never gives one of those, a task that is
`held_out` gives nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from random import Random
from typing import ClassVar

from artangram.envs.protocol import Env, Observation, Problem
from artangram.envs.tasks.client import TaskClient
from artangram.envs.tasks.dialogue import ERROR, Dialogue

MISSPOKEN = Observation(text=ERROR, done=True, failed=True)
"""What is answered to a reply that cannot be understood; the attempt is over."""


class DemoTask(ABC):
    """See `dialogue.Teachable`; each task says how a problem is drawn, shown and attempted."""

    name: ClassVar[str]
    max_turns: ClassVar[int]
    max_tokens: ClassVar[int]

    def __init__(self, client: TaskClient, *, job: str = "demo", held_out: bool = False) -> None:
        self.client = client
        self.job = job
        self.held_out = held_out

    def problems(self, seed: int) -> Iterator[Problem]:
        chance = Random(f"{self.name}-{seed}")
        while True:
            problem, numbers = self.drawn(chance)
            if is_held_out(numbers) is self.held_out:
                yield problem

    @abstractmethod
    def drawn(self, chance: Random) -> tuple[Problem, Sequence[int]]:
        """A problem, and the numbers that decide whether it is held out."""

    @abstractmethod
    def env(self, problem: Problem, *, trajectory: str) -> Env: ...

    @abstractmethod
    def demonstrate(self, problem: Problem, *, chance: Random) -> Dialogue: ...


def is_held_out(numbers: Sequence[int]) -> bool:
    """Whether a problem with these numbers is for evaluation only."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 31 + number * 7 + 3) % 1009
    return mixed % 5 == 0
