"""Replies in OpenAI's harmony format: messages in channels, of which the last one ends the reply.

`analysis` is reasoning, `final` and `commentary` are words, and a message to `functions.NAME` is a
call. The prompt has written `<|start|>assistant` already.
"""

import re

from artangram.gateway.http.callformats import SplitReply, json_call
from artangram.gateway.http.wire import ToolFunction

_START, _MESSAGE = "<|start|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_TO = re.compile(r"to=functions\.([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


def split_harmony(text: str, *, has_tools: bool) -> SplitReply:
    """The parts of a reply, also of one that is not complete."""
    reasoning, words, calls = list[str](), list[str](), list[ToolFunction]()
    for message in text.split(_START):
        header, is_said, said = message.partition(_MESSAGE)
        if not is_said:
            continue
        for end in _ENDS:
            said = said.partition(end)[0]
        to, channel = _TO.search(header), _CHANNEL.search(header)
        call = _call(to[1], said) if to and has_tools else None
        if call is not None:
            calls.append(call)
        elif channel and channel[1] == "analysis":
            reasoning.append(said)
        elif not to or not has_tools:
            words.append(said)
    return SplitReply(reasoning="\n".join(reasoning), words="\n".join(words), calls=tuple(calls))


def _call(name: str, arguments: str) -> ToolFunction | None:
    return json_call(f'{{"name": "{name}", "arguments": {arguments.strip() or "{}"}}}')


def is_harmony(source: str) -> bool:
    """A chat template that writes channels."""
    return "<|channel|>" in source and "<|message|>" in source
