"""The contract of a tokenizer, and the records around it.

- A history grows by a suffix: `first` is a whole prompt, `after` is what comes between a reply and
  the next one, so what was sampled is never made again from text.
- A reply ends with one of `end_ids`; `eos_id` is the one that closes what was cut off.
- `encode` is for text and never yields a control token: no text can forge the end of a message.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from artangram.core.errors import BadInput

SYSTEM, USER, ASSISTANT, TOOL = ROLES = ("system", "user", "assistant", "tool")


class CalledTool(Struct, frozen=True, kw_only=True):
    """A call that the model asks for."""

    name: str
    arguments: str
    """JSON."""
    id: str = ""


class Message(Struct, frozen=True):
    """Something that was said."""

    role: str
    content: str
    calls: tuple[CalledTool, ...] = ()
    reasoning: str = ""
    call_id: str = ""
    """Of the call that a tool's message answers."""
    name: str = ""


class ChatInput(Struct, frozen=True):
    """What the model reads before it replies."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    """As OpenAI's interface describes them."""
    options: Mapping[str, Any] = {}
    """Further arguments of the chat template."""


def refuse_unknown_role(role: str) -> None:
    if role not in ROLES:
        raise BadInput("role", f"{role!r} is not known", f"use one of {', '.join(ROLES)}")


class Tokenizer(Protocol):
    """A handful of verbs; see the module."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_id(self) -> int:
        """Closes a reply that was cut off."""
        ...

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Each of them ends the model's reply, as its last token."""
        ...

    def encode(self, text: str) -> tuple[int, ...]: ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text; control tokens have none."""
        ...

    def first(self, chat: ChatInput) -> tuple[int, ...]:
        """The prompt of a conversation, up to the model's reply."""
        ...

    def after(self, chat: ChatInput, *, reply: Message, last_id: int | None) -> tuple[int, ...]:
        """What comes between `reply`, whose last token is `last_id`, and the model's next one.

        `chat` holds the messages after the reply. Without `last_id` the reply is known to be
        closed.
        """
        ...
