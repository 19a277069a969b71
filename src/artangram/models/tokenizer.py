"""The contract of a tokenizer, and the records around it.

- `render(a + b) == render(a) + render(b, begins=False)`: a history grows by a suffix, so what was
  sampled is never made again from text.
- The model's reply comes after `opening` and ends with `eos_id`. A rendered message of the
  assistant is `opening`, its tokens, then `eos_id`: the same as if it had been sampled.
- `encode` is for text and never yields a control token: no text can forge the end of a message.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from artangram.core.errors import BadInput

SYSTEM, USER, ASSISTANT, TOOL = ROLES = ("system", "user", "assistant", "tool")


class Message(Struct, frozen=True):
    """Something that was said."""

    role: str
    content: str


def refuse_unknown_role(role: str) -> None:
    if role not in ROLES:
        raise BadInput("role", f"{role!r} is not known", f"use one of {', '.join(ROLES)}")


class Tokenizer(Protocol):
    """A handful of verbs; see the module."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_id(self) -> int:
        """Ends the model's reply, as its last token."""
        ...

    def encode(self, text: str) -> tuple[int, ...]: ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text; control tokens have none."""
        ...

    def render(self, messages: Sequence[Message], *, begins: bool = True) -> tuple[int, ...]:
        """The messages as tokens. `begins` is false when other tokens come before them."""
        ...

    def opening(self) -> tuple[int, ...]:
        """What comes between the last message and the model's reply."""
        ...
