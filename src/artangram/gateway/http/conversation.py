"""Finds the tokens behind the messages that a caller sends.

A chat client sends all messages with every request. For replies that the session has sampled the
original tokens are used, and all that came before them; what comes after the last such reply is
rendered.

- A request that goes on where a branch ends continues that branch.
- One that goes on from an earlier reply, or while the branch is in a turn, is a fork: it begins
  with the exact tokens up to that reply.
- One that begins differently, or offers other tools, is a line of its own.

A reply counts as the same when its words and calls are, but for white space around the words:
callers may leave its reasoning out.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from msgspec import Struct

from artangram.gateway.history import TokenHistory
from artangram.gateway.session import Session
from artangram.models.tokenizer import ChatInput, Message, Tokenizer


class Mark(Struct, frozen=True, gc=False):
    """A message of a line; of a reply, also where it ends."""

    message: Message
    end: int = 0
    """0 if it is no reply."""

    def says(self, message: Message) -> bool:
        mine = self.message
        return (
            mine.role == message.role
            and mine.content.strip() == message.content.strip()
            and len(mine.calls) == len(message.calls)
            and all(
                (a.name, a.arguments) == (b.name, b.arguments)
                for a, b in zip(mine.calls, message.calls, strict=True)
            )
        )


class Branch:
    """A line and the messages it stands for."""

    __slots__ = ("has_reply", "line", "marks", "terms")

    def __init__(self, line: TokenHistory, marks: Sequence[Mark] = (), *, terms: object) -> None:
        self.line = line
        self.marks = list(marks)
        self.terms = terms
        """The tools and options that its first prompt was written with."""
        self.has_reply = False
        """Of its own."""

    def ends_after(self, length: int) -> bool:
        """Whether these messages are all that it holds. Not if its line was continued by tokens or
        plain text, which cannot be mapped to messages."""
        end = self.marks[-1].end if self.marks else 0
        return len(self.marks) == length and len(self.line) == end

    def known(self, chat: ChatInput) -> int:
        """How many messages it begins with, up to a reply of its own."""
        if self.terms != _terms(chat):
            return 0
        pairs = zip(self.marks, chat.messages, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].says(pair[1]), pairs))
        return next((n for n in range(same, 0, -1) if self.marks[n - 1].end), 0)

    def fork(self, length: int, *, terms: object) -> "Branch":
        """A new branch that begins with the first `length` messages of this one."""
        if not length:
            return Branch(TokenHistory(), terms=terms)
        line = self.line.fork(self.marks[length - 1].end, is_after_reply=True)
        return Branch(line, self.marks[:length], terms=terms)


def _terms(chat: ChatInput) -> object:
    return (list(chat.tools), dict(chat.options))


class Prompt(Struct, frozen=True):
    """What to send to the model, and the messages that are new in it."""

    branch: Branch
    given: tuple[int, ...]
    new: tuple[Message, ...]

    def whole(self, base: int) -> tuple[int, ...]:
        """All that the model read, when the line had `base` tokens before."""
        return self.branch.line.token_ids(base) + self.given

    def answered(self, message: Message) -> None:
        """The turn is over: the branch has grown by the prompt and this reply."""
        reply = Mark(message, end=len(self.branch.line))
        self.branch.marks += (*map(Mark, self.new), reply)
        self.branch.has_reply = True


class Conversation:
    """The branches of one session."""

    def __init__(self, session: Session, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._branches = [Branch(session.line, terms=None)]

    @contextmanager
    def prompts(self, chat: ChatInput, *, choices: int = 1) -> Iterator[list[Prompt]]:
        """A prompt for each choice, each on a branch that no other request uses meanwhile."""
        found = self._prompts(chat, choices)
        try:
            yield found
        finally:
            for prompt in found:
                self._release(prompt.branch)

    def _prompts(self, chat: ChatInput, choices: int) -> list[Prompt]:
        branch, known = self._found(chat)
        terms = _terms(chat)
        # Before anything is taken: what the template refuses leaves no trace.
        given, new = self._given(branch, known, chat), tuple(chat.messages[known:])
        others = [branch.fork(known, terms=terms) for _ in range(choices - 1)]
        found = [self._taken(branch, known, terms), *map(self._added, others)]
        return [Prompt(one, given, new) for one in found]

    def _release(self, branch: Branch) -> None:
        """Its turn has ended. A branch without tokens of its own is forgotten."""
        branch.line.is_busy = False
        if not branch.has_reply and branch is not self._branches[0]:
            self._branches.remove(branch)

    def _found(self, chat: ChatInput) -> tuple[Branch, int]:
        """The branch that knows most of the messages, best one that ends there and is free."""

        def fit(branch: Branch) -> tuple[int, bool, bool]:
            known = branch.known(chat)
            return known, branch.ends_after(known), not branch.line.is_busy

        best = max(self._branches, key=fit)
        return best, fit(best)[0]

    def _taken(self, branch: Branch, known: int, terms: object) -> Branch:
        if branch.ends_after(known) and not branch.line.is_busy:
            branch.line.is_busy = True
            branch.terms = terms
            return branch
        return self._added(branch.fork(known, terms=terms))

    def _added(self, branch: Branch) -> Branch:
        branch.line.is_busy = True
        self._branches.append(branch)
        return branch

    def _given(self, branch: Branch, known: int, chat: ChatInput) -> tuple[int, ...]:
        if not known:
            return self._tokenizer.first(chat)
        reply = branch.marks[known - 1]
        new = ChatInput(chat.messages[known:], chat.tools, chat.options)
        last_id = branch.line.token_ids(reply.end)[-1]
        return self._tokenizer.after(new, reply=reply.message, last_id=last_id)
