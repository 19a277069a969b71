"""How the tasks' attempts sound, in a few dozen words.

A reply says what is asked, then what to do, then with what: `divisor gcd 18,90`. Naming the point
of the question first is a thought before the deed: it makes the choice a matter of one word, which
a model of two layers learns from rewards in minutes.
"""

from collections.abc import Iterator
from random import Random
from typing import Protocol

from msgspec import Struct

from artangram.envs.protocol import Env, Problem
from artangram.models.vocabulary import Vocabulary

ANSWER = "answer"
ERROR = "error"


class Dialogue(Struct, frozen=True):
    """What an attempt read and replied, turn by turn."""

    turns: tuple[tuple[str, str], ...]


class DialogueReply(Struct, frozen=True):
    """What was understood, what to do, and with what; a short reply leaves the first one out."""

    thought: str
    verb: str
    rest: str


def parsed(reply: str) -> DialogueReply:
    """The words of a reply; what is not words is the rest, without its spaces."""
    words = reply.split()
    count = next((i for i, word in enumerate(words) if not word.isalpha()), len(words))
    thought, verb = [*words[:2], "", ""][:2] if count >= 2 else ["", *words[:count], ""][:2]
    return DialogueReply(thought, verb, "".join(words[min(count, 2) :]))


class Teachable(Protocol):
    """A task (see `envs.protocol.Task`) that can also show how to speak."""

    @property
    def name(self) -> str: ...

    @property
    def max_turns(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    def problems(self, seed: int) -> Iterator[Problem]: ...

    def env(self, problem: Problem, *, trajectory: str) -> Env: ...

    def demonstrate(self, problem: Problem, *, chance: Random) -> Dialogue:
        """An attempt that is well-formed, and right only by chance."""
        ...


def vocabulary() -> Vocabulary:
    """Every word and digit of the four tasks."""
    from artangram.envs.tasks import calc, judged, repair, search

    words = {ANSWER, ERROR} | calc.WORDS | judged.WORDS | repair.WORDS | search.WORDS
    return Vocabulary([*sorted(words), *"0123456789,"])
