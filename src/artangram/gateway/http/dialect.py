"""How tool calls look as text: `<call> {"name": ..., "arguments": {...}}`, as many as there are.

- Offered tools are described at the end of the first system message, which is made if need be.
- A reply is words, then calls. Text that looks like a call but is not one stays text.
- A reply that a caller sends back gives the same message, however its JSON was spaced meanwhile.
"""

import json
from collections.abc import Sequence
from typing import Protocol

import msgspec

from artangram.gateway.http.wire import ChatMessage, Tool, ToolFunction
from artangram.models.tokenizer import ASSISTANT, SYSTEM, Message

CALL = "<call>"
_ROLES = {"developer": SYSTEM}
_NO_JSON = (ValueError, RecursionError)


class Dialect(Protocol):
    """Made for a tokenizer's model: what it was trained to write and to read."""

    def messages(self, said: Sequence[ChatMessage], tools: Sequence[Tool]) -> list[Message]:
        """The messages, each as one message, after the description of the tools."""
        ...

    def message(self, said: ChatMessage) -> Message:
        """One of them by itself."""
        ...

    def parsed(self, text: str) -> tuple[str, list[ToolFunction]]:
        """The words of a reply, and its calls."""
        ...

    @property
    def call_mark(self) -> str:
        """Where this is, the words of a reply may have ended."""
        ...


class CallDialect:
    """See the module."""

    call_mark = CALL

    def messages(self, said: Sequence[ChatMessage], tools: Sequence[Tool]) -> list[Message]:
        found = [self.message(one) for one in said]
        if not tools:
            return found
        offer = "\n".join(msgspec.json.encode(tool.function).decode() for tool in tools)
        offer = f'Tools, called as {CALL} {{"name": ..., "arguments": {{...}}}}:\n{offer}'
        if found and found[0].role == SYSTEM:
            return [Message(SYSTEM, f"{found[0].content}\n{offer}"), *found[1:]]
        return [Message(SYSTEM, offer), *found]

    def message(self, said: ChatMessage) -> Message:
        calls = said.tool_calls or [] if said.role == ASSISTANT else []
        words = said.text().strip() if calls else said.text()
        parts = [words] if words or not calls else []
        parts += [_written(call.function) for call in calls]
        return Message(_ROLES.get(said.role, said.role), " ".join(parts))

    def parsed(self, text: str) -> tuple[str, list[ToolFunction]]:
        place = text.find(CALL)
        if place < 0:
            return text, []
        calls = [_read(part) for part in text[place:].split(CALL)[1:]]
        if any(call is None for call in calls):
            return text, []
        return text[:place].strip(), [call for call in calls if call is not None]


def _written(call: ToolFunction) -> str:
    return f'{CALL} {{"name": {json.dumps(call.name)}, "arguments": {_same_json(call.arguments)}}}'


def _read(text: str) -> ToolFunction | None:
    """The call, if it is one that can be sent: models write all sorts of things."""
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or not isinstance(found.get("name"), str):
            return None
        found["name"].encode()  # Half of a surrogate pair is no text.
        arguments = found.get("arguments", {})
        if not isinstance(arguments, dict):
            return None
        return ToolFunction(name=found["name"], arguments=json.dumps(arguments, allow_nan=False))
    except _NO_JSON:
        return None


def _same_json(text: str) -> str:
    """However it was spaced and escaped."""
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        plain.encode()
    except _NO_JSON:
        return text
    return plain
