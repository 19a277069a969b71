"""Tokens that only count: how much is given, and how much will be answered.

The last token of a prompt says how many tokens follow, and each sampled token how many are left,
so an engine can go on with any prompt, also with one that another engine began to answer. Zero
ends an answer. What a text is about is one token repeated: texts about the same thing begin alike,
and only those share a prefix.
"""

from collections.abc import Sequence
from itertools import chain
from zlib import crc32

from artangram.gateway.engines.protocol import EngineRequest
from artangram.models.tokenizer import ChatInput, Message

VOCABULARY = 1 << 30


def words(given: int, answer: int, *, about: str) -> str:
    """A text of `given` tokens that is answered with `answer` tokens."""
    return f"{given}/{answer}/{1 + crc32(about.encode()) % (VOCABULARY - 1)}"


def countdown(request: EngineRequest) -> Sequence[int]:
    """The script of an engine."""
    return range(request.prompt[-1] - 1, -1, -1)


class CountingTokenizer:
    """See `models.tokenizer.Tokenizer`."""

    vocab_size = VOCABULARY
    eos_id = 0
    end_ids = (0,)

    def encode(self, text: str) -> tuple[int, ...]:
        given, answer, about = (max(1, int(part)) for part in text.split("/"))
        return (about,) * (given - 1) + (answer,)

    def decode(self, token_ids: Sequence[int]) -> str:
        return ""

    def first(self, chat: ChatInput) -> tuple[int, ...]:
        return tuple(chain.from_iterable(self.encode(said.content) for said in chat.messages))

    def after(self, chat: ChatInput, *, reply: Message, last_id: int | None) -> tuple[int, ...]:
        closing = () if last_id in (None, self.eos_id) else (self.eos_id,)
        return closing + self.first(chat)
