"""What messages and replies are for a model: as its chat template has them, or as plain text.

- `NativeDialect` is for tokenizers with a chat template: tools, calls and reasoning are the model's
  own.
- `CallDialect` is for models without, and for templates that write no tools: calls are text,
  `<call> {"name": ..., "arguments": {...}}`, as many as there are, and offered tools are described
  at the end of the first system message.
- A reply that a caller sends back gives the same message, however its JSON was spaced meanwhile,
  and with or without its reasoning.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.gateway.http.callformats import (
    CALL,
    THINK,
    THOUGHT,
    CallFormat,
    SplitReply,
    TextCalls,
    call_format,
    same_json,
    split_thought,
)
from artangram.gateway.http.harmony import is_harmony, split_harmony
from artangram.gateway.http.reader import ReplyReader
from artangram.gateway.http.wire import ChatMessage, ReplyForm, Tool, ToolFunction
from artangram.gateway.text import TextStream, cut
from artangram.gateway.turn import Reply
from artangram.models.hftokenizer import HfTokenizer
from artangram.models.tokenizer import ASSISTANT, SYSTEM, TOOL, USER, CalledTool, ChatInput, Message
from artangram.models.tokenizer import Tokenizer as AnyTokenizer

_ROLES = {"developer": SYSTEM}


class Dialect(Protocol):
    """Made for a tokenizer's model: what it was trained to write and to read."""

    def chat(
        self, said: Sequence[ChatMessage], tools: Sequence[Tool], options: Mapping[str, Any]
    ) -> ChatInput:
        """The messages, each as one message, and what goes with them."""
        ...

    def message(self, said: ChatMessage) -> Message:
        """One of them by itself."""
        ...

    def split(
        self, reply: Reply, *, given: Sequence[int], tools: Sequence[Tool], stops: Sequence[str]
    ) -> SplitReply:
        """The parts of a reply to a prompt that ends with `given`."""
        ...

    def reader(
        self, *, given: Sequence[int], tools: Sequence[Tool], stops: Sequence[str]
    ) -> ReplyReader:
        """For a reply that is being sampled."""
        ...

    def opening(self, form: ReplyForm, tools: Sequence[Tool]) -> tuple[int, ...]:
        """What such a reply begins with; the model writes the rest. Raises `BadInput`."""
        ...

    def stop_ids_after_call(self) -> tuple[int, ...]:
        """The tokens that end a call, so that no other one follows. Raises `BadInput`."""
        ...


def dialect_for(tokenizer: AnyTokenizer) -> Dialect:
    """The one that fits a tokenizer."""
    if isinstance(tokenizer, HfTokenizer):
        return NativeDialect(tokenizer)
    return CallDialect(tokenizer)


class CallDialect:
    """See the module."""

    def __init__(self, tokenizer: AnyTokenizer) -> None:
        self._tokenizer = tokenizer

    def chat(
        self, said: Sequence[ChatMessage], tools: Sequence[Tool], options: Mapping[str, Any]
    ) -> ChatInput:
        if options:
            raise _unknown_option(min(options), "the model has no chat template")
        found = [self.message(one) for one in said]
        if not tools:
            return ChatInput(found)
        offer = "\n".join(msgspec.json.encode(tool.function).decode() for tool in tools)
        offer = f'Tools, called as {CALL} {{"name": ..., "arguments": {{...}}}}:\n{offer}'
        if found and found[0].role == SYSTEM:
            return ChatInput([Message(SYSTEM, f"{found[0].content}\n{offer}"), *found[1:]])
        return ChatInput([Message(SYSTEM, offer), *found])

    def message(self, said: ChatMessage) -> Message:
        calls = said.tool_calls or [] if said.role == ASSISTANT else []
        words = said.text().strip() if calls else said.text()
        parts = [words] if words or not calls else []
        parts += [_written(call.function) for call in calls]
        return Message(_ROLES.get(said.role, said.role), " ".join(parts))

    def split(
        self, reply: Reply, *, given: Sequence[int], tools: Sequence[Tool], stops: Sequence[str]
    ) -> SplitReply:
        words, calls = TextCalls().calls(reply.text, tools) if tools else (reply.text, [])
        return SplitReply(words=words, calls=tuple(calls))

    def reader(
        self, *, given: Sequence[int], tools: Sequence[Tool], stops: Sequence[str]
    ) -> ReplyReader:
        stream, marks = TextStream(self._tokenizer), [*stops, *([CALL] if tools else [])]
        return ReplyReader(stream, lambda text: SplitReply(words=text), marks=marks)

    def opening(self, form: ReplyForm, tools: Sequence[Tool]) -> tuple[int, ...]:
        if not form.calls:
            return ()
        begun = f'{CALL} {{"name": "'
        named = f'{CALL} {{"name": {json.dumps(form.tool)}, "arguments":'
        return self._tokenizer.encode(named if form.tool else begun)

    def stop_ids_after_call(self) -> tuple[int, ...]:
        raise _cannot_end_calls()


class NativeDialect:
    """See the module."""

    def __init__(self, tokenizer: HfTokenizer) -> None:
        source = tokenizer.template.source
        self._tokenizer = tokenizer
        self._spelling = _Spelling(tokenizer)
        self._is_harmony = is_harmony(source)
        self._thinks = THOUGHT in source or bool(tokenizer.tokens_of(THOUGHT))
        self._format: CallFormat | None = None if self._is_harmony else call_format(source)
        self._as_text = CallDialect(tokenizer)
        if not tokenizer.writes_tools:
            self._format = TextCalls()

    def chat(
        self, said: Sequence[ChatMessage], tools: Sequence[Tool], options: Mapping[str, Any]
    ) -> ChatInput:
        for name in sorted(options):
            if name not in self._tokenizer.template.source:
                raise _unknown_option(name, "the model's chat template does not use it")
        if not self._tokenizer.writes_tools:
            plain = self._as_text.chat(said, tools, {})
            return ChatInput(_as_said_by_user(plain.messages), options=options)
        if tools:
            self._refuse_tools()
        names = {call.id: call.function.name for one in said for call in one.tool_calls or []}
        found = [self.message(one) for one in said]
        found = [
            structs.replace(one, name=names.get(one.call_id, "")) if one.role == TOOL else one
            for one in found
        ]
        return ChatInput(found, _offered(tools), options)

    def message(self, said: ChatMessage) -> Message:
        if not self._tokenizer.writes_tools:
            (found,) = _as_said_by_user([self._as_text.message(said)])
            return found
        calls = said.tool_calls or [] if said.role == ASSISTANT else []
        return Message(
            _ROLES.get(said.role, said.role),
            said.text(),
            calls=tuple(
                CalledTool(
                    name=call.function.name,
                    arguments=same_json(call.function.arguments),
                    id=call.id,
                )
                for call in calls
            ),
            reasoning=said.reasoning_content or said.reasoning or "",
            call_id=said.tool_call_id or "",
        )

    def split(
        self, reply: Reply, *, given: Sequence[int], tools: Sequence[Tool], stops: Sequence[str]
    ) -> SplitReply:
        text = cut(self._spelling.decode(reply.token_ids), stops)
        return self._parts(text, tools, is_open=self._is_thinking(given))

    def reader(
        self, *, given: Sequence[int], tools: Sequence[Tool], stops: Sequence[str]
    ) -> ReplyReader:
        is_open = self._is_thinking(given)

        def parts(text: str) -> SplitReply:
            return self._parts(text, (), is_open=is_open)

        calls = self._format.marks if tools and self._format else ()
        watched = (THINK, THOUGHT) if self._thinks else ()
        stream = TextStream(self._spelling)
        if self._is_harmony:
            return ReplyReader(
                stream, lambda text: split_harmony(text, has_tools=bool(tools)), marks=stops
            )
        return ReplyReader(stream, parts, marks=(*stops, *calls), watched=watched)

    def opening(self, form: ReplyForm, tools: Sequence[Tool]) -> tuple[int, ...]:
        if not form.calls:
            return self._tokenizer.opening_of_words()
        if not self._tokenizer.writes_tools:
            return self._tokenizer.opening_of_words() + self._as_text.opening(form, tools)
        return self._tokenizer.opening_of_call(_offered(tools), name=form.tool)

    def stop_ids_after_call(self) -> tuple[int, ...]:
        if self._is_harmony:
            return ()  # A call ends its reply.
        closing = self._format.closing if self._format is not None else ""
        if not (found := self._tokenizer.tokens_of(closing)):
            raise _cannot_end_calls()
        return found

    def _parts(self, text: str, tools: Sequence[Tool], *, is_open: bool) -> SplitReply:
        if self._is_harmony:
            return split_harmony(text, has_tools=bool(tools))
        reasoning = ""
        if self._thinks:
            reasoning, text = split_thought(text, is_open=is_open)
        calls: list[ToolFunction] = []
        if tools and self._format is not None:
            text, calls = self._format.calls(text, tools)
        return SplitReply(reasoning=reasoning, words=text, calls=tuple(calls))

    def _is_thinking(self, given: Sequence[int]) -> bool:
        """The prompt has begun a thought."""
        return self._thinks and self._tokenizer.spelled(given[-16:]).rstrip().endswith(THINK)

    def _refuse_tools(self) -> None:
        problem = self._tokenizer.tools_problem
        if not problem and self._format is None and not self._is_harmony:
            problem = "how the chat template writes calls is not known here"
        if problem:
            fix = "offer none, or give the model a chat template that can"
            raise BadInput("tools", problem, fix)


def _offered(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": tool.function} for tool in tools]


def _cannot_end_calls() -> BadInput:
    problem = "cannot be false: no token of this model ends a call"
    return BadInput("parallel_tool_calls", problem, "leave it out")


def _unknown_option(name: str, problem: str) -> BadInput:
    field = name if name == "reasoning_effort" else "chat_template_kwargs"
    said = problem if field == name else f"{name!r}: {problem}"
    return BadInput(field, said, "leave it out")


def _as_said_by_user(messages: Sequence[Message]) -> list[Message]:
    """Where the template knows no tools, what they say is said by the user."""
    return [structs.replace(one, role=USER) if one.role == TOOL else one for one in messages]


class _Spelling:
    """A tokenizer whose control tokens are text, but for those that end a reply."""

    def __init__(self, tokenizer: HfTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ends = frozenset(tokenizer.end_ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.spelled([one for one in token_ids if one not in self._ends])


def _written(call: ToolFunction) -> str:
    return f'{CALL} {{"name": {json.dumps(call.name)}, "arguments": {same_json(call.arguments)}}}'
