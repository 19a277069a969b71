"""A trajectory as training sees it: the tokens that were sampled, by which weights, and its end.

- Tokens are recorded where they are made and never made again from text.
- `oldest_version` is the version of its oldest sampled token: staleness counts from there.
- Only `OK`, `TRUNCATED` and `TASK_FAILED` may train. Infrastructure failure is never a reward.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from artangram.core.ids import JobId, TrajectoryId


class TrajectoryStatus(StrEnum):
    """How a trajectory ended."""

    OK = "ok"
    TRUNCATED = "truncated"
    """It used up its turns or its context, or its last answer ended at its limit of tokens."""
    TASK_FAILED = "task_failed"
    """The environment says that the attempt itself went wrong."""
    INFRA_FAILED = "infra_failed"
    STALE = "stale"
    """Its oldest token is older than the bound allows."""
    SURPLUS = "surplus"
    """Its group was complete without it."""


TRAINABLE = frozenset(
    {TrajectoryStatus.OK, TrajectoryStatus.TRUNCATED, TrajectoryStatus.TASK_FAILED}
)


class VersionSpan(Struct, frozen=True, gc=False):
    """Tokens `start` to `end` (exclusive) of a segment were sampled by `version`."""

    version: int
    start: int
    end: int


class Segment(Struct, frozen=True, kw_only=True, gc=False):
    """Tokens in a row that were all sampled by the model, or all given to it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    """Of the sampled tokens, under the weights that sampled them, at `temperature`; empty when
    given."""
    temperature: float = 1.0
    """At which they were sampled, and have to be scored; 1 for the likeliest ones."""
    shaped_by: tuple[str, ...] = ()
    """Further parameters that decided what was sampled, such as `top_p`: with any of them the
    log-probabilities are not those of what the tokens were drawn from, and cannot be trained on."""
    spans: tuple[VersionSpan, ...] = ()
    """They cover every sampled token; empty when given."""
    turn: int = 0
    """Of those of its attempt, the one that sampled it: they rise with time."""

    @property
    def is_sampled(self) -> bool:
        return bool(self.spans)


class Trajectory(Struct, frozen=True, kw_only=True):
    """One finished attempt at a problem."""

    id: TrajectoryId
    job: JobId
    task: str
    problem: str
    """The id of the problem it attempted."""
    group: str
    segments: tuple[Segment, ...]
    branches: tuple[tuple[Segment, ...], ...] = ()
    """Further conversations of the attempt: of sub-agents, or after its history was rewritten.
    What they took over from others counts as given, so every sampled token is in one of them."""
    status: TrajectoryStatus
    reward: float | None = None
    """`None` unless the status may train."""
    turn_rewards: tuple[float | None, ...] = ()
    """Of its replies, in the order in which they were asked for, where its task gives any."""
    reason: str = ""
    turns: int = 0
    info: dict[str, Any] = {}
    """Numbers for people and metrics; training does not look."""

    @property
    def oldest_version(self) -> int | None:
        """Of its oldest sampled token; `None` if it sampled none."""
        every = (segment for line in self.conversations for segment in line)
        return min((span.version for one in every for span in one.spans), default=None)

    @property
    def conversations(self) -> tuple[tuple[Segment, ...], ...]:
        """All of them, the first one first."""
        return (self.segments, *self.branches)

    @property
    def num_sampled(self) -> int:
        return sum(map(sampled_in, self.conversations))

    def staleness(self, current: int) -> int:
        """How many versions its oldest sampled token is behind; 0 if it sampled none."""
        oldest = self.oldest_version
        return 0 if oldest is None else current - oldest


def sampled_in(segments: Iterable[Segment]) -> int:
    """How many tokens of these the model made."""
    return sum(len(segment.token_ids) for segment in segments if segment.is_sampled)


class Group(Struct, frozen=True, kw_only=True):
    """Sibling attempts at one problem, all of which may train."""

    id: str
    job: JobId
    task: str
    problem: str
    trajectories: tuple[Trajectory, ...]

    @property
    def oldest_version(self) -> int | None:
        """Of the oldest token any of them sampled; `None` if none did."""
        versions = [t.oldest_version for t in self.trajectories]
        return min((v for v in versions if v is not None), default=None)

    @property
    def has_signal(self) -> bool:
        """Whether siblings differ in their reward, or in that of a turn."""
        rewards = {t.reward for t in self.trajectories}
        return len(rewards) > 1 or any(len(set(row.values())) > 1 for row in self.turn_rewards)

    @property
    def turn_rewards(self) -> list[dict[int, float]]:
        """For each turn the rewards that siblings got for it, by their place in the group."""
        most = max((len(t.turn_rewards) for t in self.trajectories), default=0)
        rows: list[dict[int, float]] = [{} for _ in range(most)]
        for place, trajectory in enumerate(self.trajectories):
            for row, reward in zip(rows, trajectory.turn_rewards, strict=False):
                if reward is not None:
                    row[place] = reward
        return rows

    def staleness(self, current: int) -> int:
        return max((t.staleness(current) for t in self.trajectories), default=0)


class Batch(Struct, frozen=True, kw_only=True):
    """What one step consumes: whole groups, none of them too stale at `version`."""

    groups: tuple[Group, ...]
    version: int
    """The newest announced when it was formed; staleness counts from it."""
    asked: int
    """How many groups were asked for. Fewer came when waiting would have cost more."""
    waited_s: float = 0.0

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        return tuple(t for group in self.groups for t in group.trajectories)
