"""Counters of the gateway, for metrics and for tests."""

from msgspec import Struct, field


class Fallback(Struct, frozen=True, gc=False):
    """A task that was not served by the class it prefers."""

    task: str
    preferred: str
    used: str


class PrefixTally(Struct):
    """Tokens of a task's prompts, of the turns whose engine says what it found in its cache."""

    asked: int = 0
    expected: float = 0.0
    """That routing expected to be found."""
    found: int = 0

    @property
    def hit_rate(self) -> float:
        return self.found / self.asked if self.asked else 0.0


class Counters(Struct):
    """Each only grows."""

    turns: int = 0
    replies: int = 0
    aborted: int = 0
    failed: int = 0
    """Ended by an error, a deadline or a caller that hung up."""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    moves: int = 0
    """Turns that continued on another replica."""
    waits: int = 0
    """Times that a turn found no replica."""
    lost: int = 0
    """Replicas that died."""
    stalled: int = 0
    """Of these, the ones that were given up because they stalled."""
    fallbacks: dict[Fallback, int] = field(default_factory=dict)
    """The preferred class had no replica."""
    spills: dict[Fallback, int] = field(default_factory=dict)
    """Another class cost less than the plan's, prices included."""
    rerouted: int = 0
    """Turns that went to a replica that has read less of their session than another one."""
    reread_tokens: int = 0
    """Tokens that were read again for that."""
    splits: int = 0
    """Turns that one replica prefilled and another one answered."""
    split_bytes: int = 0
    """Handed from one replica to another by these."""
    unsplit: int = 0
    """Turns that should have been split, but a replica was missing, died or was cleared."""
    expired: int = 0
    """Sessions of HTTP callers that were idle for too long."""
    by_replica: dict[str, int] = field(default_factory=dict)
    """Requests sent to each."""
    prefixes: dict[str, PrefixTally] = field(default_factory=dict)
    """By task."""

    def on_prefix(self, task: str, *, asked: int, expected: float, found: int) -> None:
        """An engine said how much of a prompt it found in its cache."""
        tally = self.prefixes.setdefault(task, PrefixTally())
        tally.asked += asked
        tally.expected += expected
        tally.found += found
