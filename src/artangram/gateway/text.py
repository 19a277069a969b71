"""Text of tokens that keep coming: what is certain is given out once, in order.

A token may be half a character, or change the space before the next one, so the text of a token is
taken from a window of tokens around it.
"""

from collections.abc import Sequence
from typing import Protocol

from artangram.models.tokenizer import Tokenizer


class TokenText(Protocol):
    """What makes text of tokens."""

    def decode(self, token_ids: Sequence[int]) -> str: ...


_WINDOW = 16
_HALF = "\ufffd"


class TextStream:
    """`push` tokens; what it returns, joined, is what they add to the text of those they come
    after: a word may or may not have a space before it."""

    __slots__ = ("_ids", "_read", "_start", "_tokenizer")

    def __init__(self, tokenizer: TokenText, *, after: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids = list(after[-_WINDOW:])
        self._start = 0
        """Where the window begins."""
        self._read = len(self._ids)
        """Tokens whose text was given out."""

    def push(self, token_ids: Sequence[int]) -> str:
        self._ids += token_ids
        return self._more(is_last=False)

    def push_each(self, token_ids: Sequence[int]) -> list[str]:
        """What each of them adds: one that ends in half a character nothing, the next all of it."""
        return [self.push([token_id]) for token_id in token_ids]

    def would_add(self, token_id: int) -> str:
        """The text of a token that may come next."""
        read = self._ids[self._start : self._read]
        known, text = self._tokenizer.decode(read), self._tokenizer.decode([*read, token_id])
        return text[len(known) :]

    def flush(self) -> str:
        """What was held back."""
        return self._more(is_last=True)

    def _more(self, *, is_last: bool) -> str:
        text = self._tokenizer.decode(self._ids[self._start :])
        if text.endswith(_HALF) and not is_last:
            return ""
        before = self._tokenizer.decode(self._ids[self._start : self._read])
        self._read = len(self._ids)
        self._move_window()
        return text[len(before) :]

    def _move_window(self) -> None:
        """Forget what cannot matter any more: there must be a word before the next one."""
        if self._read - self._start > 2 * _WINDOW:
            start = self._read - _WINDOW
            if self._tokenizer.decode(self._ids[start:]).strip():
                self._start = start


class StopTexts:
    """Looks for the first of some texts in a stream of tokens."""

    __slots__ = ("_longest", "_stops", "_stream", "_tail")

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str], *, after: Sequence[int] = ()
    ) -> None:
        self._stops = stops
        self._longest = max(len(stop) for stop in stops)
        self._stream = TextStream(tokenizer, after=after)
        self._tail = ""

    def found_after(self, token_ids: Sequence[int]) -> int | None:
        """How many of these tokens it takes until a stop text is complete."""
        for number, token in enumerate(token_ids, start=1):
            new = self._stream.push([token])
            self._tail = self._tail[-self._longest :] + new
            if any(stop in self._tail for stop in self._stops):
                return number
        return None


class Certain:
    """Words of a reply that will stay words, whatever comes: nothing from a mark on is given out.

    A mark is a text that ends the words, such as a stop text or the beginning of a tool call.
    """

    __slots__ = ("_given", "_marks", "_text")

    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = marks
        self._text = ""
        self._given = 0

    def push(self, new: str) -> str:
        self._text += new
        end = min(self._end(mark) for mark in self._marks) if self._marks else len(self._text)
        start, self._given = self._given, max(self._given, end)
        return self._text[start : self._given]

    def rest(self, words: str) -> str:
        """What is left of the words, now that all of them are known."""
        return words[self._given :]

    def _end(self, mark: str) -> int:
        """Where the mark begins, or may begin."""
        if (place := self._text.find(mark, max(0, self._given - len(mark)))) >= 0:
            return place
        longest = min(len(mark) - 1, len(self._text))
        held = next((n for n in range(longest, 0, -1) if self._text.endswith(mark[:n])), 0)
        return len(self._text) - held


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop texts."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places, default=len(text))]


def text_after(tokenizer: Tokenizer, before: Sequence[int], token_ids: Sequence[int]) -> str:
    """What tokens add to the text of those before them."""
    if not before:
        return tokenizer.decode(token_ids)
    window = before[-_WINDOW:]
    return tokenizer.decode([*window, *token_ids])[len(tokenizer.decode(window)) :]


def encoded_after(tokenizer: Tokenizer, before: str, text: str) -> tuple[int, ...]:
    """The tokens of a text that comes after another, if that does not change those of the other."""
    known = tokenizer.encode(before)
    both = tokenizer.encode(before + text)
    return both[len(known) :] if both[: len(known)] == known else tokenizer.encode(text)
