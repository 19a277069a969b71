"""OpenAI's Responses over the same conversations as chat: requests in, answers and events out.

- What a request asks for becomes a `ChatRequest`, so tokens, lines and refusals are those of chat.
- `previous_response_id` continues an answer of the same session; answers are remembered as long as
  their session lives.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count
from typing import Any

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.gateway.http.answer import ChatChoice, DeltaChoice, TokenUsage
from artangram.gateway.http.chat import Chat
from artangram.gateway.http.sse import named_event
from artangram.gateway.http.wire import (
    ChatMessage,
    ChatRequest,
    Part,
    SamplingFields,
    Tool,
    ToolCall,
    ToolFunction,
)

Remembered = dict[str, list[ChatMessage]]
"""The conversation up to and with an answer, by the id of the answer."""


class ResponseItem(Struct, kw_only=True):
    """A message, a call of a tool, or what a tool said."""

    type: str = "message"
    role: str = ""
    content: str | list[Part] = ""
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | list[Part] = ""


class ResponsesRequest(SamplingFields, kw_only=True):
    model: str
    input: str | list[ResponseItem]
    instructions: str | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    previous_response_id: str | None = None
    include: list[str] | None = None
    """What else an answer may hold; there is nothing else here."""
    truncation: str | None = None
    reasoning: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def chat(self, remembered: Remembered) -> ChatRequest:
        """The same request, as chat has it."""
        if self.truncation not in (None, "disabled"):
            raise BadInput("truncation", "is not supported", "leave it out, and shorten the input")
        return ChatRequest(
            model=self.model,
            messages=self._messages(remembered),
            max_completion_tokens=self.max_output_tokens,
            **self.sampling_fields(),
            reasoning_effort=self._effort(),
            chat_template_kwargs=self.chat_template_kwargs,
            stream=self.stream,
            tools=[_tool(one) for one in self.tools or []] or None,
            tool_choice=self._choice(),
            parallel_tool_calls=self.parallel_tool_calls,
            response_format=self._form(),
        )

    def _choice(self) -> Any:
        match self.tool_choice:
            case {"type": "function", "name": str(name)}:
                return {"type": "function", "function": {"name": name}}
        return self.tool_choice

    def _form(self) -> dict[str, Any] | None:
        form: dict[str, Any] | None = (self.text or {}).get("format")
        if form and form.get("type") == "json_schema":
            return {"type": "json_schema", "json_schema": {"schema": form.get("schema")}}
        return form

    def _effort(self) -> str | None:
        for name, value in (self.reasoning or {}).items():
            # A summary would be of reasoning, which answers here do not hide.
            if name not in ("effort", "summary", "generate_summary") and value is not None:
                raise BadInput("reasoning", f"{name!r} is not supported", "leave it out")
        return (self.reasoning or {}).get("effort")

    def _messages(self, remembered: Remembered) -> list[ChatMessage]:
        before: list[ChatMessage] = []
        if self.previous_response_id is not None:
            if self.previous_response_id not in remembered:
                problem = f"{self.previous_response_id!r} is not an answer of this session"
                raise BadInput("previous_response_id", problem, "send the whole conversation")
            before = [one for one in remembered[self.previous_response_id] if one.role != "system"]
        if isinstance(self.input, str):
            new = [ChatMessage(role="user", content=self.input)]
        else:
            new = _said(self.input)
        told = [ChatMessage(role="system", content=self.instructions)] if self.instructions else []
        return [*told, *before, *new]


class ResponsesWork:
    """The work behind one request; used once."""

    def __init__(
        self, chat: Chat, asked: ChatRequest, *, id: str, created: int, remembered: Remembered
    ) -> None:
        self._chat = chat
        self._asked = asked
        self._id = id.replace("chatcmpl", "resp")
        self._remembered = remembered
        self._created = created
        self._numbers = count()

    async def whole(self) -> object:
        found = await self._chat.whole()
        (choice,) = found.choices
        assert isinstance(choice, ChatChoice) and found.usage is not None  # noqa: PT018
        words, calls = choice.message.content or "", list(choice.message.tool_calls or [])
        return self._answer(words, calls, choice.finish_reason, found.usage)

    async def events(self) -> AsyncGenerator[bytes, None]:
        words, calls, finish = "", list[ToolCall](), "stop"
        has_begun = False
        async with aclosing(self._chat.deltas()) as deltas:
            async for one in deltas:
                if not has_begun:
                    has_begun = True
                    begun = self._response([], status="in_progress", usage=None)
                    yield self._event("response.created", response=begun)
                    yield self._event("response.in_progress", response=begun)
                if isinstance(one, DeltaChoice):
                    new, calls = one.delta.content or "", list(one.delta.tool_calls or calls)
                    finish = one.finish_reason or finish
                    for event in self._words(new, is_first=not words):
                        yield event
                    words += new
                else:
                    for event in self._closing(words, calls):
                        yield event
                    answer = self._answer(words, calls, finish, one)
                    kind = "completed" if answer["status"] == "completed" else "incomplete"
                    yield self._event(f"response.{kind}", response=answer)

    def _words(self, new: str, *, is_first: bool) -> list[bytes]:
        if not new:
            return []
        place = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
        delta = self._event("response.output_text.delta", **place, delta=new, logprobs=[])
        if not is_first:
            return [delta]
        item = {**self._message(""), "status": "in_progress", "content": []}
        return [
            self._event("response.output_item.added", output_index=0, item=item),
            self._event("response.content_part.added", **place, part=_part("")),
            delta,
        ]

    def _closing(self, words: str, calls: list[ToolCall]) -> list[bytes]:
        found: list[bytes] = []
        if words:
            place = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
            found += [
                self._event("response.output_text.done", **place, text=words, logprobs=[]),
                self._event("response.content_part.done", **place, part=_part(words)),
                self._event("response.output_item.done", output_index=0, item=self._message(words)),
            ]
        for index, call in enumerate(calls, start=int(bool(words))):
            item = _called(call)
            place = {"item_id": item["id"], "output_index": index}
            begun = {**item, "arguments": "", "status": "in_progress"}
            arguments = call.function.arguments
            found += [
                self._event("response.output_item.added", output_index=index, item=begun),
                self._event("response.function_call_arguments.delta", **place, delta=arguments),
                self._event(
                    "response.function_call_arguments.done",
                    **place,
                    name=call.function.name,
                    arguments=arguments,
                ),
                self._event("response.output_item.done", output_index=index, item=item),
            ]
        return found

    def _answer(
        self, words: str, calls: list[ToolCall], finish: str, usage: TokenUsage
    ) -> dict[str, Any]:
        said = ChatMessage(role="assistant", content=words, tool_calls=calls or None)
        self._remembered[self._id] = [*self._asked.messages, said]
        items = [self._message(words)] if words or not calls else []
        items += [_called(call) for call in calls]
        status = "incomplete" if finish == "length" else "completed"
        return self._response(items, status=status, usage=_usage(usage))

    def _response(
        self, items: list[dict[str, Any]], *, status: str, usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        asked, is_cut = self._asked, status == "incomplete"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": None,
            "metadata": {},
            "model": asked.model,
            "output": items,
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "temperature": asked.temperature,
            "tool_choice": _told(asked.tool_choice),
            "tools": [{"type": "function", **one.function} for one in asked.tools or []],
            "top_p": asked.top_p,
            "usage": usage,
        }

    @property
    def _message_id(self) -> str:
        return self._id.replace("resp", "msg")

    def _message(self, words: str) -> dict[str, Any]:
        return {
            **{"type": "message", "id": self._message_id, "role": "assistant"},
            **{"status": "completed", "content": [_part(words)]},
        }

    def _event(self, kind: str, **fields: object) -> bytes:
        return named_event(kind, {"type": kind, "sequence_number": next(self._numbers), **fields})


def _said(items: list[ResponseItem]) -> list[ChatMessage]:
    """The items as messages; calls belong to the assistant's message before them."""
    found: list[ChatMessage] = []
    for item in items:
        match item.type:
            case "message":
                found.append(_spoken(item))
            case "function_call":
                function = ToolFunction(name=item.name, arguments=item.arguments)
                if not found or found[-1].role != "assistant":
                    found.append(ChatMessage(role="assistant", content=""))
                calls = [
                    *(found[-1].tool_calls or []),
                    ToolCall(id=item.call_id, function=function),
                ]
                found[-1].tool_calls = calls
            case "function_call_output":
                text = _text(item.output)
                found.append(ChatMessage(role="tool", content=text, tool_call_id=item.call_id))
            case "reasoning":
                continue  # It is in the conversation already.
            case _:
                problem = f"has an item of type {item.type!r}"
                raise BadInput("input", problem, "send messages and calls of functions")
    return found


def _spoken(item: ResponseItem) -> ChatMessage:
    text = _text(item.content)
    match item.role:
        case "user" | "assistant" | "system" | "developer":
            return ChatMessage(role=item.role, content=text)
    raise BadInput("input", f"has the role {item.role!r}", "use user, assistant or system")


def _text(content: str | list[Part]) -> str:
    if isinstance(content, str):
        return content
    for part in content:
        if part.type not in ("input_text", "output_text", "text"):
            raise BadInput("input", f"has a part of type {part.type!r}", "send text only")
    return "".join(part.text for part in content)


def _tool(tool: dict[str, Any]) -> Tool:
    if tool.get("type") != "function" or not isinstance(tool.get("name"), str):
        raise BadInput("tools", f"{tool.get('type')!r} is not offered here", "use functions")
    known = ("name", "description", "parameters")
    return Tool(function={key: tool[key] for key in known if tool.get(key) is not None})


def _told(choice: Any) -> Any:
    """The choice of tools as Responses have it."""
    if isinstance(choice, dict):
        return {"type": "function", "name": choice["function"]["name"]}
    return choice or "auto"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _called(call: ToolCall) -> dict[str, Any]:
    return {
        **{"type": "function_call", "id": call.id.replace("call", "fc", 1), "call_id": call.id},
        **{"name": call.function.name, "arguments": call.function.arguments},
        "status": "completed",
    }


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
