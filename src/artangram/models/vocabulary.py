"""A tokenizer for small models: one token per known word, one per character of the rest.

- Words are sets of letters, or names in angle brackets such as `<call>`; digits stand alone, so
  that numbers can be copied and counted.
- The usual space costs no token: one around a word, none between characters. Where a text differs
  it has a `<space>` or `<glue>` token. So `decode(encode(text)) == text`
  for every text whose characters are known; an unknown character becomes U+FFFD.
- The file is `tokenizer.json` in the model's directory.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.models.tokenizer import (
    ASSISTANT,
    ROLES,
    ChatInput,
    Message,
    refuse_unknown_role,
)

FILE_NAME = "tokenizer.json"
PAD, UNKNOWN, END, GLUE, SPACE = CONTROL = ("<pad>", "<unk>", "<end>", "<glue>", "<space>")
STRANGE = "\ufffd"
_RESERVED = (*CONTROL, *(f"<{role}>" for role in ROLES))
_PIECES = re.compile(r"<[a-z_]+>|[A-Za-z_]+|[^ ]")
_CLOSING = frozenset(".,;:?!)]}'\"\n")
_OPENING = frozenset("([{'\"\n")


class _VocabularyFile(Struct, frozen=True, kw_only=True):
    artangram_vocabulary: int
    pieces: list[str]


class Vocabulary:
    """See `tokenizer.Tokenizer`. The order of `pieces` is the order of their ids."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._texts = [*_RESERVED, *pieces]
        self._ids = {text: number for number, text in enumerate(self._texts)}
        if len(self._ids) != len(self._texts):
            again = sorted({text for text in pieces if self._texts.count(text) > 1})
            raise BadInput("pieces", f"{again} are repeated or reserved", "leave them out")
        self._known = {text: self._ids[text] for text in pieces}
        self.vocab_size = len(self._texts)
        self.eos_id = self._ids[END]
        self.end_ids = (self.eos_id,)

    def __repr__(self) -> str:
        return f"<Vocabulary of {self.vocab_size}>"

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Vocabulary":
        """A vocabulary of every word and every character of `texts`."""
        found = {piece for text in texts for piece in _PIECES.findall(text)}
        return cls(sorted(found - set(_RESERVED) | {c for piece in found for c in piece}))

    @classmethod
    def load(cls, directory: Path) -> "Vocabulary":
        path = directory / FILE_NAME
        try:
            return cls(msgspec.json.decode(path.read_bytes(), type=_VocabularyFile).pieces)
        except (OSError, msgspec.MsgspecError) as error:
            raise BadInput(str(path), str(error), "save a vocabulary there first") from error

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        content = _VocabularyFile(artangram_vocabulary=1, pieces=self._texts[len(_RESERVED) :])
        (directory / FILE_NAME).write_bytes(msgspec.json.encode(content))

    def encode(self, text: str) -> tuple[int, ...]:
        found: list[int] = []
        before, end = "", 0
        for match in _PIECES.finditer(text):
            gap = match.start() - end
            for piece in self._split(match[0]):
                found += self._spacing(_usual_gap(before, piece), gap)
                found.append(self._known.get(piece, self._ids[UNKNOWN]))
                before, gap = piece, 0
            end = match.end()
        found += [self._ids[SPACE]] * (len(text) - end)
        return tuple(found)

    def decode(self, token_ids: Sequence[int]) -> str:
        parts: list[str] = []
        before, is_glued = "", False
        for number in token_ids:
            piece = self._texts[number]
            if piece == SPACE:
                parts.append(" ")
            elif piece == GLUE:
                is_glued = True
            elif number >= len(_RESERVED) or piece == UNKNOWN:
                piece = STRANGE if piece == UNKNOWN else piece
                usual = "" if is_glued else " " * _usual_gap(before, piece)
                parts += (usual, piece)
                before, is_glued = piece, False
        return "".join(parts)

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        found: list[int] = []
        for message in messages:
            found.append(self._role_id(message.role))
            found += self.encode(message.content)
            found.append(self.eos_id)
        return tuple(found)

    def opening(self) -> tuple[int, ...]:
        return (self._role_id(ASSISTANT),)

    def first(self, chat: ChatInput) -> tuple[int, ...]:
        for name in ("tools", "options"):
            if getattr(chat, name):
                raise BadInput(name, "need a chat template", "leave them out")
        return self.render(chat.messages) + self.opening()

    def after(self, chat: ChatInput, *, reply: Message, last_id: int | None) -> tuple[int, ...]:
        closing = () if last_id in (None, self.eos_id) else (self.eos_id,)
        return closing + self.first(chat)

    def _role_id(self, role: str) -> int:
        refuse_unknown_role(role)
        return self._ids[f"<{role}>"]

    def _split(self, word: str) -> list[str]:
        """The word, or its characters if it is not known."""
        if word in self._known:
            return [word]
        return [character if character in self._known else STRANGE for character in word]

    def _spacing(self, usual: int, gap: int) -> list[int]:
        """Tokens that say how a gap differs from the usual one."""
        return [self._ids[GLUE]] if gap < usual else [self._ids[SPACE]] * (gap - usual)


def _usual_gap(before: str, after: str) -> int:
    """One around a word, none between characters, at the start and inside of punctuation."""
    if not before or before in _OPENING or after in _CLOSING:
        return 0
    return int(len(before) > 1 or len(after) > 1)
