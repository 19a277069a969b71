"""The contract of an environment: a few verbs around one attempt at a problem.

- An `Env` serves one trajectory: `reset`, then `respond` per turn until `done`, then `score` once,
  then `aclose`, whatever happened before.
- One that is `Detachable` hands its reward over instead of scoring, and is closed at once.
- One that has a `queued_s` (seconds its calls waited in line so far) is not charged for them. A
  trajectory of a cluster has the same: an environment that lives in one hands it on. It is asked
  until the reward is known, after `aclose` too.
- One that is `Solving` asks the model by itself, over HTTP: the runner calls `solve` and no `reset`
  or `respond`.
- Its tool calls are actions of the cluster it was made with: they wait for cores, not the model.
- What the attempt does wrong is an observation or a low score. `InfraFailed` means that it cannot
  say how good the attempt was; anything else it raises is a defect of the environment, and counts
  as infrastructure, too.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol, runtime_checkable

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
    reward: float | None = None
    """Of the reply that it answers; it trains that reply's tokens beside the score."""


class TurnRewards(Struct, frozen=True, kw_only=True):
    """A score with rewards of single replies, in the order in which they were asked for."""

    reward: float
    turns: tuple[float | None, ...]
    """`None` where a reply has none."""


class Env(Protocol):
    async def reset(self) -> Observation: ...

    async def respond(self, reply: str) -> Observation: ...

    async def score(self) -> float | TurnRewards: ...

    async def aclose(self) -> None: ...


Scorer = Callable[[], Awaitable[float | TurnRewards]]
"""Says how good an attempt was. It may be asked again when infrastructure failed."""


@runtime_checkable
class Detachable(Protocol):
    """An environment whose reward does not need it: a judge's opinion, a function of the text.

    It is closed, and its place given away, before the reward is known.
    """

    async def detach(self) -> Scorer:
        """Instead of `score`: what the reward needs, taken out of the environment."""
        ...


class ModelAccess(Struct, frozen=True, kw_only=True):
    """How an agent reaches the model: any OpenAI client takes these three."""

    base_url: str
    """Ends with `/v1`."""
    api_key: str
    """Of one attempt: what is sampled with it belongs to its trajectory."""
    model: str
    sandbox_url: str = ""
    """The base URL for programs in sandboxes that were opened with `network=[llm.sandbox_host]`;
    empty where they have no way to the model."""

    @property
    def url(self) -> str:
        """Without the `/v1` at its end, as Anthropic's client wants it."""
        return self.base_url.removesuffix("/v1")

    @property
    def sandbox_host(self) -> str:
        """The one host that such a sandbox needs."""
        return self.sandbox_url.removeprefix("http://").removesuffix("/v1")

    @property
    def sandbox_environ(self) -> dict[str, str]:
        """Variables by which clients in such a sandbox find the model."""
        return {
            "OPENAI_BASE_URL": self.sandbox_url,
            "OPENAI_API_BASE": self.sandbox_url,
            "OPENAI_API_KEY": self.api_key,
            "OPENAI_MODEL": self.model,
            "ANTHROPIC_BASE_URL": self.sandbox_url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": self.api_key,
            "ANTHROPIC_MODEL": self.model,
        }


@runtime_checkable
class Solving(Protocol):
    """An environment whose agent asks the model as often, and in as many conversations, as it
    likes."""

    @property
    def samples_as_run(self) -> bool:
        """The run's sampling settings replace those of the agent's requests."""
        ...

    async def solve(self, llm: ModelAccess) -> Observation:
        """The whole attempt. Says only whether it failed."""
        ...


class Task(Protocol):
    """A problem domain: its problems, its environment, how long an attempt may take."""

    @property
    def name(self) -> str: ...

    def problems(self, seed: int) -> Iterator[Problem]:
        """The same seed gives the same problems. After the last, the next seed is asked for."""
        ...

    def env(self, problem: Problem, *, trajectory: str) -> Env:
        """A fresh environment. `trajectory` names what it opens in the client."""
        ...

    @property
    def max_turns(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """That one reply may have."""
        ...
