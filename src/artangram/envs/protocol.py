"""The contract of an environment: a few verbs around one attempt at a problem.

- An `Env` serves one trajectory: `reset`, then `respond` per turn until `done`, then `score` once,
  then `aclose`, whatever happened before.
- Its tool calls are actions of the house it was made with: they wait for cores, not the model.
- What the attempt does wrong is an observation or a low score. `InfraFailed` means that nobody can
  say how good the attempt was; anything else it raises is a defect of the environment, and counts
  as infrastructure, too.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True):
    """One item of a task."""

    id: str
    task: str
    data: dict[str, Any] = {}


class Observation(Struct, frozen=True, kw_only=True):
    """What the model reads next."""

    text: str
    done: bool = False
    failed: bool = False
    """The attempt itself went wrong: it ends as `task_failed` and still gets its score."""


class Env(Protocol):
    async def reset(self) -> Observation: ...

    async def respond(self, reply: str) -> Observation: ...

    async def score(self) -> float: ...

    async def aclose(self) -> None: ...


class Task(Protocol):
    """A problem domain: its problems, its environment, how long an attempt may take."""

    @property
    def name(self) -> str: ...

    def problems(self, seed: int) -> Iterator[Problem]:
        """Without end; the same seed gives the same problems."""
        ...

    def env(self, problem: Problem, *, trajectory: str) -> Env:
        """A fresh environment. `trajectory` names what it opens in the house."""
        ...

    @property
    def max_turns(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """That one reply may have."""
        ...
