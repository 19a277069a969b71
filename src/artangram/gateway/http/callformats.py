"""How families of models write calls of tools and their reasoning, read back from their text.

- The text has its control tokens as they are spelled, and not the token that ended the reply.
- Text that looks like a call but is not one stays text.
- Each format says at which marks words may have ended, so that a stream gives out words only.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from artangram.gateway.http.wire import Tool, ToolFunction

NO_JSON = (ValueError, RecursionError)
CALL = "<call>"
THINK, THOUGHT = "<think>", "</think>"


class SplitReply(Struct, frozen=True, kw_only=True):
    """A reply in its parts."""

    reasoning: str = ""
    words: str = ""
    calls: tuple[ToolFunction, ...] = ()


class CallFormat(Protocol):
    """One family's way."""

    @property
    def marks(self) -> Sequence[str]:
        """Where one of them is, the words may have ended."""
        ...

    @property
    def closing(self) -> str:
        """What ends a call; empty if nothing does."""
        ...

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[str, list[ToolFunction]]:
        """The words, and the calls after them."""
        ...


class TextCalls:
    """`<call>` and JSON, as many as there are: for models that know no calls of their own."""

    marks = (CALL,)
    closing = ""

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[str, list[ToolFunction]]:
        words, *parts = text.split(CALL)
        return _all_or_none(text, words, [json_call(part) for part in parts])


class TaggedCalls:
    """`<tool_call>` around JSON (Hermes, Qwen), a function and parameters (Qwen's coders, Nemotron)
    or a name, keys and values (GLM)."""

    marks = ("<tool_call>",)
    closing = "</tool_call>"
    _block = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
    _function = re.compile(r"<function=([^>\n]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
    _parameter = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
    _pair = re.compile(
        r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>",
        re.DOTALL,
    )

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[str, list[ToolFunction]]:
        words, mark, _ = text.partition(self.marks[0])
        blocks = self._block.findall(text[len(words) :]) if mark else []
        return _all_or_none(text, words, [self._call(block, tools) for block in blocks])

    def _call(self, block: str, tools: Sequence[Tool]) -> ToolFunction | None:
        if block.startswith("{"):
            return json_call(block)
        if found := self._function.search(block):
            name, pairs = found[1].strip(), self._parameter.findall(found[2])
        else:
            name, pairs = block.split("<arg_key>")[0].strip(), self._pair.findall(block)
        if not name or "\n" in name:
            return None
        schema = _properties(name, tools)
        arguments = {key.strip(): _value(value, schema.get(key.strip())) for key, value in pairs}
        return ToolFunction(name=name, arguments=json.dumps(arguments))


class LlamaCalls:
    """The whole reply is one JSON object, or several after `;`, perhaps after `<|python_tag|>`."""

    marks = ("<|python_tag|>", '{"name":', "{'name':")
    closing = ""

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[str, list[ToolFunction]]:
        bare = text.strip().removeprefix("<|python_tag|>").strip()
        if not bare.startswith("{"):
            return text, []
        found: list[ToolFunction | None] = []
        decoder = json.JSONDecoder()
        try:
            while bare:
                one, end = decoder.raw_decode(bare)
                found.append(call_of(one))
                bare = bare[end:].lstrip(" ;\n")
        except NO_JSON:
            return text, []
        return _all_or_none(text, "", found)


class MistralCalls:
    """`[TOOL_CALLS]`, then a list in JSON, or a name, `[ARGS]` and its arguments."""

    marks = ("[TOOL_CALLS]",)
    closing = ""

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[str, list[ToolFunction]]:
        words, *parts = text.split(self.marks[0])
        found: list[ToolFunction | None] = []
        for part in parts:
            name, args, rest = part.partition("[ARGS]")
            if args:
                name = name.partition("[CALL_ID]")[0]
                found.append(_parsed(rest, lambda given, name=name: _named(name.strip(), given)))
                continue
            listed = _parsed(part, lambda given: given if isinstance(given, list) else [given])
            found += [None] if listed is None else [call_of(one) for one in listed]
        return _all_or_none(text, words, found)


def _token(name: str) -> str:
    """A control token of DeepSeek's about tools: with a wide bar, and low lines of its own."""
    return f"<\uff5ctool\u2581{name}\uff5c>".replace("_", "\u2581")


class DeepSeekCalls:
    """Between control tokens: a name, and its arguments in JSON, fenced or not."""

    marks = (_token("calls_begin"), _token("call_begin"))
    closing = _token("call_end")
    _call = re.compile(
        f"{_token('call_begin')}(.*?){_token('sep')}(.*?)(?:{_token('call_end')}|\\Z)", re.DOTALL
    )
    _fence = re.compile(r"(.*?)\n```json\n(.*?)\n```", re.DOTALL)

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[str, list[ToolFunction]]:
        places = [place for mark in self.marks if (place := text.find(mark)) >= 0]
        if not places:
            return text, []
        found: list[ToolFunction | None] = []
        for name, rest in self._call.findall(text):
            if fenced := self._fence.match(rest):
                name, rest = fenced[1], fenced[2]
            found.append(_parsed(rest, lambda given, name=name: _named(name.strip(), given)))
        return _all_or_none(text, text[: min(places)], found or [None])


FORMATS: Mapping[str, CallFormat] = {
    _token("calls_begin"): DeepSeekCalls(),
    "[TOOL_CALLS]": MistralCalls(),
    "<|python_tag|>": LlamaCalls(),
    '"parameters": ': LlamaCalls(),
    "<tool_call>": TaggedCalls(),
}
"""By what a chat template of the family writes; the first that it does."""


def call_format(source: str) -> CallFormat | None:
    """The format that a chat template teaches."""
    return next((form for mark, form in FORMATS.items() if mark in source), None)


def split_thought(text: str, *, is_open: bool) -> tuple[str, str]:
    """The reasoning, and the rest. `is_open` if the prompt has begun it."""
    if not is_open and not text.lstrip().startswith(THINK):
        return "", text
    thought, closing, rest = text.partition(THOUGHT)
    thought = thought.lstrip().removeprefix(THINK)
    return thought.strip("\n"), rest.lstrip("\n") if closing else ""


def call_of(found: object) -> ToolFunction | None:
    """A call from an object with a name and arguments, which some call parameters."""
    if not isinstance(found, dict):
        return None
    given: Any = found.get("arguments", found.get("parameters", {}))
    return _named(found.get("name"), given)


def json_call(text: str) -> ToolFunction | None:
    """The call, if it is one that can be sent: models write all sorts of things."""
    found: ToolFunction | None = _parsed(text, call_of)
    return found


def same_json(text: str) -> str:
    """However it was spaced and escaped."""
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        plain.encode()
    except NO_JSON:
        return text
    return plain


def _named(name: object, arguments: object) -> ToolFunction | None:
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    try:
        name.encode()  # Half of a surrogate pair is no text.
        return ToolFunction(name=name, arguments=json.dumps(arguments, allow_nan=False))
    except NO_JSON:
        return None


def _parsed(text: str, made: Any) -> Any:
    try:
        return made(json.loads(text))
    except NO_JSON:
        return None


def _all_or_none(
    text: str, words: str, calls: Sequence[ToolFunction | None]
) -> tuple[str, list[ToolFunction]]:
    if not calls or any(call is None for call in calls):
        return text, []
    return words.strip(), [call for call in calls if call is not None]


def _properties(name: str, tools: Sequence[Tool]) -> Mapping[str, Any]:
    for tool in tools:
        if tool.function.get("name") == name:
            found = (tool.function.get("parameters") or {}).get("properties")
            return found if isinstance(found, dict) else {}
    return {}


def _value(text: str, schema: object) -> object:
    """A value that is written without quotes if it is a text."""
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except NO_JSON:
        return text
