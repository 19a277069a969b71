"""Reads a reply while it is sampled: what is certain of its reasoning and words, once, in order.

Text from which on a mark may begin (a stop text, a call, the end of a thought) is held back until
it is certain what it is.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from artangram.gateway.http.callformats import SplitReply
from artangram.gateway.text import TextStream


class ReplyPiece(Struct, frozen=True):
    """What some tokens have made certain."""

    reasoning: str
    words: str


class ReplyReader:
    """`split` makes parts of the whole text so far; `marks` end the words."""

    __slots__ = ("_marks", "_reasoning", "_split", "_stream", "_text", "_watched", "_words")

    def __init__(
        self,
        stream: TextStream,
        split: Callable[[str], SplitReply],
        *,
        marks: Sequence[str],
        watched: Sequence[str] = (),
    ) -> None:
        self._stream = stream
        self._split = split
        self._marks = marks
        self._watched = (*marks, *watched)
        self._text = ""
        self._reasoning = 0
        self._words = 0

    def push(self, token_ids: Sequence[int]) -> ReplyPiece:
        self._text += self._stream.push(token_ids)
        sure = self._text[: len(self._text) - self._held()]
        found = self._split(sure)
        places = [place for mark in self._marks if (place := found.words.find(mark)) >= 0]
        return self._more(found.reasoning, found.words[: min(places, default=None)])

    def rest(self, found: SplitReply) -> ReplyPiece:
        """What is left, now that all of it is known."""
        return self._more(found.reasoning, found.words)

    def _more(self, reasoning: str, words: str) -> ReplyPiece:
        piece = ReplyPiece(reasoning[self._reasoning :], words[self._words :])
        self._reasoning = max(self._reasoning, len(reasoning))
        self._words = max(self._words, len(words))
        return piece

    def _held(self) -> int:
        """How much of the end may be the beginning of a mark, or white space before one."""
        end = len(self._text.rstrip()) if self._watched else len(self._text)
        longest = max((len(mark) for mark in self._watched), default=1) - 1
        for size in range(min(longest, end), 0, -1):
            tail = self._text[end - size : end]
            if any(mark.startswith(tail) for mark in self._watched if len(mark) > size):
                return len(self._text) - end + size
        return len(self._text) - end
