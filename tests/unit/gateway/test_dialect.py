"""Tool calls as text: what a model wrote becomes a call, or stays what it wrote."""

import json

import pytest

from artangram.gateway.http.callformats import TextCalls
from artangram.gateway.http.dialect import CallDialect
from artangram.gateway.http.wire import ChatMessage, ToolCall, ToolFunction
from artangram.models.vocabulary import Vocabulary

DIALECT = CallDialect(Vocabulary([]))
FORMAT = TextCalls()


def test_words_and_calls_are_told_apart():
    text = 'so be it <call> {"name": "a", "arguments": {"x": 1}} <call> {"name": "b"}'
    words, calls = FORMAT.calls(text, [])
    assert words == "so be it"
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        ("a", {"x": 1}),
        ("b", {}),
    ]


@pytest.mark.parametrize(
    "written",
    [
        "",
        "{",
        "[]",
        '{"name": 3}',
        '{"name": "a", "arguments": []}',
        '{"name": "a", "arguments": {}} and more',
        '{"name": "a", "arguments": {"x": NaN}}',
        '{"name": "a", "arguments": {"x": 1e999}}',
        r'{"name": "\ud800", "arguments": {}}',
        '{"name": "a", "arguments": ' + '{"x":' * 5000,
        "[" * 5000,
    ],
    ids=lambda written: written[:20],
)
def test_what_no_client_could_read_as_a_call_stays_text(written):
    text = f"hello <call> {written}"
    assert FORMAT.calls(text, []) == (text, [])


def given_back(arguments):
    call = ToolCall(function=ToolFunction(name="a", arguments=arguments))
    return DIALECT.message(ChatMessage(role="assistant", tool_calls=[call])).content


@pytest.mark.parametrize("arguments", [r'{"x": "\ud800"}', "[" * 5000, "no json"])
def test_any_call_can_be_sent_back(arguments):
    assert given_back(arguments).startswith('<call> {"name": "a"')
    assert given_back(arguments).encode()


def test_a_call_reads_the_same_however_it_was_escaped():
    said = '<call> {"name": "a", "arguments": {"x": "\u00e9"}}'
    _, (call,) = FORMAT.calls(said, [])
    assert given_back(call.arguments) == given_back(r'{"x":"\u00e9"}') == said
