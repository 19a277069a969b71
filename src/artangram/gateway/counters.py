"""Counters of the gateway, for metrics and for tests."""

from msgspec import Struct, field


class Fallback(Struct, frozen=True, gc=False):
    """A task that was not served by the class it prefers."""

    task: str
    preferred: str
    used: str


class TaskTokens(Struct):
    """What the conversations of a task are made of; each only grows."""

    sessions: int = 0
    turns: int = 0
    opening: int = 0
    """Tokens of first prompts."""
    prompt: int = 0
    """Tokens of all prompts, what was said before included."""
    sampled: int = 0
    asked: int = 0
    """Tokens of prompts whose engine said what it found in its cache."""
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
    paced: int = 0
    """Sessions that waited until a replica had room for them."""
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
    tasks: dict[str, TaskTokens] = field(default_factory=dict)

    def task(self, name: str) -> TaskTokens:
        return self.tasks.setdefault(name, TaskTokens())

    def on_turn(self, task: str, *, prompt: int, is_first: bool) -> None:
        self.turns += 1
        self.prompt_tokens += prompt
        tally = self.task(task)
        tally.turns += 1
        tally.prompt += prompt
        if is_first:
            tally.sessions += 1
            tally.opening += prompt

    def on_sampled(self, task: str, tokens: int) -> None:
        self.sampled_tokens += tokens
        self.task(task).sampled += tokens

    def on_prefix(self, task: str, *, asked: int, expected: float, found: int) -> None:
        """An engine said how much of a prompt it found in its cache."""
        tally = self.task(task)
        tally.asked += asked
        tally.expected += expected
        tally.found += found
