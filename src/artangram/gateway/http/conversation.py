"""Finds the tokens behind the messages that a caller sends.

A chat client sends all messages with every request. For messages that the session has seen before
the original tokens are used; only new ones are rendered.

- A request that goes on where a branch ends continues that branch.
- One that goes on from an earlier message, or while the branch is in a turn, is a fork: it begins
  with the exact tokens up to that message.
- One that begins differently is a line of its own.

A reply counts as the same when its text is, but for white space around it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from msgspec import Struct

from artangram.gateway.history import TokenHistory
from artangram.gateway.session import Session
from artangram.models.tokenizer import ASSISTANT, Message, Tokenizer


class Mark(Struct, frozen=True, gc=False):
    """A message of a line, and where it ends."""

    role: str
    text: str
    end: int
    is_reply: bool = False

    def says(self, message: Message) -> bool:
        return self.role == message.role and self.text == message.content.strip()


class Branch:
    """A line and the messages it stands for."""

    __slots__ = ("has_reply", "line", "marks")

    def __init__(self, line: TokenHistory, marks: Sequence[Mark] = ()) -> None:
        self.line = line
        self.marks = list(marks)
        self.has_reply = False
        """Of its own."""

    def ends_after(self, length: int) -> bool:
        """Whether these messages are all that it holds. Not if its line was continued by tokens or
        plain text, which cannot be mapped to messages."""
        end = self.marks[-1].end if self.marks else 0
        return len(self.marks) == length and len(self.line) == end

    def known(self, messages: Sequence[Message]) -> int:
        """How many of the messages it begins with."""
        pairs = zip(self.marks, messages, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0].says(pair[1]), pairs))

    def fork(self, length: int) -> "Branch":
        """A new branch that begins with the first `length` messages of this one."""
        if not length:
            return Branch(TokenHistory())
        last = self.marks[length - 1]
        line = self.line.fork(last.end, is_after_reply=last.is_reply)
        return Branch(line, self.marks[:length])


class Prompt(Struct, frozen=True):
    """What to send to the model, and where each new message ends."""

    branch: Branch
    given: tuple[int, ...]
    marks: tuple[Mark, ...]

    def whole(self, base: int) -> tuple[int, ...]:
        """All that the model read, when the line had `base` tokens before."""
        return self.branch.line.token_ids(base) + self.given

    def answered(self, message: Message) -> None:
        """The turn is over: the branch has grown by the prompt and this reply."""
        reply = Mark(ASSISTANT, message.content.strip(), len(self.branch.line), is_reply=True)
        self.branch.marks += (*self.marks, reply)
        self.branch.has_reply = True


class Conversation:
    """The branches of one session."""

    def __init__(self, session: Session, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._branches = [Branch(session.line)]

    @contextmanager
    def prompts(self, messages: Sequence[Message], *, choices: int = 1) -> Iterator[list[Prompt]]:
        """A prompt for each choice, each on a branch that no other request uses meanwhile."""
        found = self._prompts(messages, choices)
        try:
            yield found
        finally:
            for prompt in found:
                self._release(prompt.branch)

    def _prompts(self, messages: Sequence[Message], choices: int) -> list[Prompt]:
        branch, known = self._found(messages)
        others = [branch.fork(known) for _ in range(choices - 1)]
        found = [self._taken(branch, known), *map(self._added, others)]
        return [self._prompt(one, messages[known:]) for one in found]

    def _release(self, branch: Branch) -> None:
        """Its turn has ended. A branch without tokens of its own is forgotten."""
        branch.line.is_busy = False
        if not branch.has_reply and branch is not self._branches[0]:
            self._branches.remove(branch)

    def _found(self, messages: Sequence[Message]) -> tuple[Branch, int]:
        """The branch that knows most of the messages, best one that ends there and is free."""

        def fit(branch: Branch) -> tuple[int, bool, bool]:
            known = branch.known(messages)
            return known, branch.ends_after(known), not branch.line.is_busy

        best = max(self._branches, key=fit)
        return best, fit(best)[0]

    def _taken(self, branch: Branch, known: int) -> Branch:
        if branch.ends_after(known) and not branch.line.is_busy:
            branch.line.is_busy = True
            return branch
        return self._added(branch.fork(known))

    def _added(self, branch: Branch) -> Branch:
        branch.line.is_busy = True
        self._branches.append(branch)
        return branch

    def _prompt(self, branch: Branch, new: Sequence[Message]) -> Prompt:
        line, tokenizer = branch.line, self._tokenizer
        given: list[int] = []
        if line.is_after_reply and line.last_id != tokenizer.eos_id:
            given.append(tokenizer.eos_id)  # The reply was cut off and has not ended its message.
        marks = []
        for message in new:
            begins = not len(line) and not given
            given += tokenizer.render([message], begins=begins)
            marks.append(Mark(message.role, message.content.strip(), len(line) + len(given)))
        return Prompt(branch, (*given, *tokenizer.opening()), tuple(marks))
