"""Anthropic's Messages over the same conversations as chat: requests in, answers and events out.

What a request asks for becomes a `ChatRequest`, so tokens, lines and refusals are those of chat.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.gateway.http.answer import ChatChoice, DeltaChoice, TokenUsage
from artangram.gateway.http.chat import Chat
from artangram.gateway.http.sse import named_event
from artangram.gateway.http.wire import (
    ChatMessage,
    ChatRequest,
    SamplingFields,
    Tool,
    ToolCall,
    ToolFunction,
)

STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class ContentBlock(Struct, kw_only=True):
    """A part of a message: text, a call of a tool, or what a tool said."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: "str | list[ContentBlock]" = ""
    is_error: bool | None = None


class AnthropicMessage(Struct, kw_only=True):
    role: str
    content: str | list[ContentBlock]

    def messages(self) -> list[ChatMessage]:
        """As chat has it: what tools said are messages of their own."""
        if isinstance(self.content, str):
            return [_message(self.role, self.content)]
        found = [
            ChatMessage(role="tool", content=_text(one.content), tool_call_id=one.tool_use_id)
            for one in self.content
            if one.type == "tool_result"
        ]
        # What was thought is in the conversation already.
        known = ("tool_result", "thinking", "redacted_thinking")
        rest = [one for one in self.content if one.type not in known]
        calls = [_call(one) for one in rest if one.type == "tool_use"]
        words = _text([one for one in rest if one.type != "tool_use"])
        if words or calls or not found:
            found.append(_message(self.role, words, calls))
        return found


class AnthropicTool(Struct, kw_only=True):
    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class MessagesRequest(SamplingFields, kw_only=True):
    model: str
    messages: list[AnthropicMessage]
    max_tokens: int
    system: str | list[ContentBlock] = ""
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None

    def chat(self) -> ChatRequest:
        """The same request, as chat has it."""
        asked = self.tool_choice or {}
        system = _text(self.system)
        said = [one for message in self.messages for one in message.messages()]
        return ChatRequest(
            model=self.model,
            messages=[*([ChatMessage(role="system", content=system)] if system else []), *said],
            max_tokens=self.max_tokens,
            **self.sampling_fields(),
            chat_template_kwargs=self.chat_template_kwargs,
            stop=self.stop_sequences,
            stream=self.stream,
            tools=[_tool(one) for one in self.tools or []] or None,
            tool_choice=_choice(asked),
            parallel_tool_calls=False if asked.get("disable_parallel_tool_use") else None,
            **self._output(),
        )

    def _output(self) -> dict[str, Any]:
        """What `output_config` says of the answer, as chat has it."""
        asked = dict(self.output_config or {})
        effort, form = asked.pop("effort", None), asked.pop("format", None)
        for name in asked:
            raise BadInput("output_config", f"{name!r} is not supported", "leave it out")
        if form and form.get("type") == "json_schema":
            form = {"type": "json_schema", "json_schema": {"schema": form.get("schema")}}
        return {"reasoning_effort": effort, "response_format": form}


class MessagesWork:
    """The work behind one request; used once."""

    def __init__(self, chat: Chat, *, id: str, model: str) -> None:
        self._chat = chat
        self._head = {
            **{"id": id.replace("chatcmpl", "msg"), "type": "message"},
            **{"role": "assistant", "model": model},
        }

    async def whole(self) -> object:
        found = await self._chat.whole()
        (choice,) = found.choices
        assert isinstance(choice, ChatChoice) and found.usage is not None  # noqa: PT018
        words, calls = choice.message.content, choice.message.tool_calls or []
        blocks: list[dict[str, Any]] = [{"type": "text", "text": words}] if words else []
        blocks += [_used(call) for call in calls]
        return {
            **self._head,
            "content": blocks,
            "stop_reason": STOPS[choice.finish_reason],
            "stop_sequence": None,
            "usage": _usage(found.usage),
        }

    async def events(self) -> AsyncGenerator[bytes, None]:
        blocks = _Blocks()
        async with aclosing(self._chat.deltas()) as deltas:
            async for one in deltas:
                if not blocks.has_begun:
                    blocks.has_begun = True
                    empty = {"input_tokens": 0, "output_tokens": 0}
                    unfinished: dict[str, Any] = {
                        "content": [],
                        "stop_reason": None,
                        "stop_sequence": None,
                    }
                    started = {**self._head, **unfinished, "usage": empty}
                    yield _event("message_start", message=started)
                if isinstance(one, DeltaChoice):
                    for event in blocks.of(one):
                        yield event
                else:
                    stopped = {"stop_reason": blocks.stop_reason, "stop_sequence": None}
                    yield _event("message_delta", delta=stopped, usage=_usage(one))
        yield _event("message_stop")


class _Blocks:
    """The blocks of a message that is streamed, one after the other."""

    def __init__(self) -> None:
        self.has_begun = False
        self.stop_reason = "end_turn"
        self._index = -1
        self._is_text_open = False

    def of(self, choice: DeltaChoice) -> list[bytes]:
        found: list[bytes] = []
        if choice.delta.content:
            if not self._is_text_open:
                self._is_text_open = True
                found.append(self._open({"type": "text", "text": ""}))
            found.append(self._delta({"type": "text_delta", "text": choice.delta.content}))
        if choice.finish_reason is not None:
            self.stop_reason = STOPS[choice.finish_reason]
            if self._is_text_open:
                found.append(self._close())
            for call in choice.delta.tool_calls or []:
                found.append(self._open({**_used(call), "input": {}}))
                arguments = call.function.arguments
                found.append(self._delta({"type": "input_json_delta", "partial_json": arguments}))
                found.append(self._close())
        return found

    def _open(self, block: dict[str, Any]) -> bytes:
        self._index += 1
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        return _event("content_block_stop", index=self._index)


def _choice(asked: dict[str, Any]) -> Any:
    match asked:
        case {} if not asked:
            return "auto"
        case {"type": "auto" | "none" as kind}:
            return kind
        case {"type": "any"}:
            return "required"
        case {"type": "tool", "name": str(name)}:
            return {"type": "function", "function": {"name": name}}
    raise BadInput("tool_choice", "is not known", "use auto, none, any, or name a tool")


def _event(kind: str, **fields: object) -> bytes:
    return named_event(kind, {"type": kind, **fields})


def _message(role: str, text: str, calls: list[ToolCall] | None = None) -> ChatMessage:
    given = {"role": role, "content": text, "tool_calls": calls or None}
    try:
        return msgspec.convert(given, ChatMessage, from_attributes=True)
    except msgspec.ValidationError as error:
        raise BadInput("messages", str(error), "use user and assistant") from error


def _text(content: str | list[ContentBlock]) -> str:
    if isinstance(content, str):
        return content
    for block in content:
        if block.type != "text":
            raise BadInput("messages", f"have a block of type {block.type!r}", "send text only")
    return "".join(block.text for block in content)


def _call(block: ContentBlock) -> ToolCall:
    function = ToolFunction(name=block.name, arguments=json.dumps(block.input))
    return ToolCall(id=block.id, function=function)


def _tool(tool: AnthropicTool) -> Tool:
    fields = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return Tool(function=fields)


def _used(call: ToolCall) -> dict[str, Any]:
    arguments = json.loads(call.function.arguments)
    return {"type": "tool_use", "id": call.id, "name": call.function.name, "input": arguments}


def _usage(usage: TokenUsage) -> dict[str, int]:
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
