"""What families of models write becomes calls, words and reasoning, or stays what it is."""

import json

import pytest

from artangram.gateway.http.callformats import (
    DeepSeekCalls,
    LlamaCalls,
    MistralCalls,
    TaggedCalls,
    split_thought,
)
from artangram.gateway.http.harmony import split_harmony
from artangram.gateway.http.wire import Tool

SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}, "times": {}}}
TOOLS = [Tool(function={"name": "weigh", "parameters": SCHEMA})]
ARGUMENTS = {"what": "3", "times": 2}
WRITTEN = json.dumps(ARGUMENTS)
CALL = f'{{"name": "weigh", "arguments": {WRITTEN}}}'


def deepseek(name: str) -> str:
    return f"<\uff5ctool\u2581{name}\uff5c>".replace("_", "\u2581")


FAMILIES = {
    "hermes": (TaggedCalls(), f"ok\n<tool_call>\n{CALL}\n</tool_call>"),
    "qwen coder": (
        TaggedCalls(),
        "ok<tool_call>\n<function=weigh>\n<parameter=what>\n3\n</parameter>\n"
        "<parameter=times>\n2\n</parameter>\n</function>\n</tool_call>",
    ),
    "glm": (
        TaggedCalls(),
        "ok\n<tool_call>weigh\n<arg_key>what</arg_key>\n<arg_value>3</arg_value>\n"
        "<arg_key>times</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    ),
    "llama": (LlamaCalls(), f'{{"name": "weigh", "parameters": {WRITTEN}}}'),
    "llama with a tag": (
        LlamaCalls(),
        f'<|python_tag|>{{"name": "weigh", "parameters": {WRITTEN}}}',
    ),
    "mistral": (MistralCalls(), f"ok[TOOL_CALLS] [{CALL}]"),
    "newer mistral": (MistralCalls(), f"ok[TOOL_CALLS]weigh[ARGS]{WRITTEN}"),
    "deepseek": (
        DeepSeekCalls(),
        f"ok{deepseek('calls_begin')}{deepseek('call_begin')}function{deepseek('sep')}weigh\n"
        f"```json\n{WRITTEN}\n```{deepseek('call_end')}{deepseek('calls_end')}",
    ),
    "newer deepseek": (
        DeepSeekCalls(),
        f"ok{deepseek('calls_begin')}{deepseek('call_begin')}weigh{deepseek('sep')}{WRITTEN}"
        f"{deepseek('call_end')}{deepseek('calls_end')}",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_is_read_as_its_family_writes_it(family: str):
    form, text = FAMILIES[family]
    words, (call,) = form.calls(text, TOOLS)
    assert words in ("ok", "")
    assert (call.name, json.loads(call.arguments)) == ("weigh", ARGUMENTS)
    assert any(mark in text for mark in form.marks)


@pytest.mark.parametrize("family", FAMILIES)
def test_several_calls_are_all_read(family: str):
    form, text = FAMILIES[family]
    more = {"llama": "; ", "llama with a tag": "; "}.get(family, "\n")
    second = text.removeprefix("ok").strip().removeprefix("<|python_tag|>")
    words, calls = form.calls(text + more + second, TOOLS)
    assert [call.name for call in calls] == ["weigh", "weigh"], words


@pytest.mark.parametrize("family", FAMILIES)
def test_half_a_call_stays_text(family: str):
    form, text = FAMILIES[family]
    broken = text.replace("weigh", "", 1).replace("3", '"', 1)[:-12]
    _, calls = form.calls(broken, TOOLS)
    assert calls == [] or all(call.name != "weigh" for call in calls)


def test_a_thought_is_told_from_the_words():
    assert split_thought("<think>\nhm\n</think>\n\nyes", is_open=False) == ("hm", "yes")
    assert split_thought("hm\n</think>\n\nyes", is_open=True) == ("hm", "yes")
    assert split_thought("hm, no end", is_open=True) == ("hm, no end", "")
    assert split_thought("yes", is_open=False) == ("", "yes")


def test_channels_of_harmony_are_told_apart():
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.weigh <|constrain|>json<|message|>{"what": "3"}'
    )
    found = split_harmony(text, has_tools=True)
    assert (found.reasoning, found.words) == ("hm", "")
    assert [(call.name, call.arguments) for call in found.calls] == [("weigh", '{"what": "3"}')]
    answer = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>3"
    assert split_harmony(answer, has_tools=True).words == "3"
    other = "<|start|>assistant to=functions.weigh<|channel|>commentary json<|message|>{}"
    assert split_harmony(other, has_tools=True).calls[0].name == "weigh"
