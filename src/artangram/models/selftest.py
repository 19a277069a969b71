"""Whether a chat template can serve conversations that grow by a suffix.

The prompts that grow are compared with the template's rendering of the whole conversation, token
for token. What the template writes for the replies themselves may be anything: their tokens are the
sampled ones. Where the two differ, a model would be trained on prompts that it gets nowhere else.
"""

from collections.abc import Sequence
from typing import Protocol

from artangram.core.errors import BadInput
from artangram.models.tokenizer import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    CalledTool,
    ChatInput,
    Message,
)

_CALL = CalledTool(name="look", arguments='{"place": "here"}', id="call00001")
_ASKS = Message(ASSISTANT, "", calls=(_CALL,))
_TELLS = Message(TOOL, "it is warm", call_id="call00001", name="look")
_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Which one."}},
            "required": ["place"],
        },
    },
}
NO_TOOLS = "the chat template does not write tools"
_FIX = (
    "use a template that keeps what was said as it was, such as those that TRL ships for training"
)


class GrowingTokenizer(Protocol):
    """What is tested; see `hftokenizer`."""

    def first(self, chat: ChatInput) -> tuple[int, ...]: ...

    def after(self, chat: ChatInput, *, reply: Message, last_id: int | None) -> tuple[int, ...]: ...

    def whole(self, chat: ChatInput, *, is_open: bool) -> tuple[int, ...]: ...

    def spelled(self, token_ids: Sequence[int]) -> str: ...


def refuse_inexact(tokenizer: GrowingTokenizer) -> None:
    """Raise `BadInput` with the difference, if there is one."""
    try:
        _compare_plain(tokenizer, reasoning="")
    except BadInput as error:
        try:
            # A template that opens a thought for every reply keeps those that were thought.
            _compare_plain(tokenizer, reasoning="thought")
        except BadInput:
            raise error from None


def _compare_plain(tokenizer: GrowingTokenizer, *, reasoning: str) -> None:
    turns = [
        Message(role, f"word{n}", reasoning=reasoning if role == ASSISTANT else "")
        for n, role in enumerate((USER, ASSISTANT) * 2)
    ]
    plain = [*turns, Message(USER, "word9")]
    _compare(tokenizer, ChatInput(plain[:3]))
    _compare(tokenizer, ChatInput(plain))
    with_system = ChatInput([Message(SYSTEM, "be kind"), *plain])
    try:
        tokenizer.first(with_system)
    except BadInput:
        return  # It knows no system, and refuses each conversation with one by itself.
    _compare(tokenizer, with_system)


def problem_with_tools(tokenizer: GrowingTokenizer) -> str:
    """Why conversations with tools do not work; empty if they do."""
    asked = [Message(USER, "word0")]
    with_tools = ChatInput(asked, [_TOOL])
    try:
        if "look" not in tokenizer.spelled(tokenizer.first(with_tools)):
            return NO_TOOLS
        _learn_arguments(tokenizer)
        once = [*asked, _ASKS, _TELLS]
        again = [*once, Message(ASSISTANT, "word1"), Message(USER, "word2"), _ASKS, _TELLS]
        for messages in (once, again):
            _compare(tokenizer, ChatInput(messages, [_TOOL]))
    except BadInput as error:
        return error.problem
    return ""


def _learn_arguments(tokenizer: GrowingTokenizer) -> None:
    """Some templates want the arguments of a call as an object, some as JSON."""
    template = getattr(tokenizer, "template", None)
    if template is None:
        return
    try:
        tokenizer.whole(ChatInput([Message(USER, "x"), _ASKS, _TELLS], [_TOOL]), is_open=True)
    except BadInput:
        template.writes_arguments_as_text = True


def _compare(tokenizer: GrowingTokenizer, chat: ChatInput) -> None:
    """Follow the prompts of a conversation through its whole rendering."""
    messages = list(chat.messages)
    whole = tokenizer.whole(chat, is_open=True)
    replies = [n for n, message in enumerate(messages) if message.role == ASSISTANT]
    first = tokenizer.first(ChatInput(messages[: replies[0]], chat.tools))
    if whole[: len(first)] != first:
        raise _inexact(tokenizer, whole, first)
    at = len(first)
    for number, place in enumerate(replies):
        end = replies[number + 1] if number + 1 < len(replies) else len(messages)
        new = ChatInput(messages[place + 1 : end], chat.tools)
        rest = tokenizer.after(new, reply=messages[place], last_id=-1)
        is_last = end == len(messages)
        found = len(whole) - len(rest) if is_last else _found(whole, rest, start=at)
        if found < at or whole[found : found + len(rest)] != rest:
            raise _inexact(tokenizer, whole[at:], rest, is_end=is_last)
        at = found + len(rest)


def _found(whole: tuple[int, ...], part: tuple[int, ...], *, start: int) -> int:
    places = range(start, len(whole) - len(part) + 1)
    return next((at for at in places if whole[at : at + len(part)] == part), -1)


def _inexact(
    tokenizer: GrowingTokenizer,
    whole: tuple[int, ...],
    part: tuple[int, ...],
    *,
    is_end: bool = False,
) -> BadInput:
    expected = whole[-len(part) :] if is_end else whole[: len(part)]
    pairs = list(zip(expected, part, strict=False))
    place = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
    start = max(0, place - 8)
    there = tokenizer.spelled(expected[start : place + 12])
    here = tokenizer.spelled(part[start : place + 12])
    problem = f"writes {there!r} in the whole conversation, but {here!r} as its next prompt"
    return BadInput("chat_template", problem, _FIX)
