"""Native tool calls and reasoning of real families, through the real client, whole and streamed."""

import asyncio
import json

import openai
import pytest
from families_support import a_family

from artangram.models import HfTokenizer
from artangram.models.tokenizer import ChatInput, Message

TOOL = {
    "type": "function",
    "function": {
        "name": "weigh",
        "description": "Weigh it.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}
# As the models write it, oddly spaced: a rendering would have other tokens.
REPLIES = {
    "qwen3": "<think>\nhm\n</think>\n\n<tool_call>\n"
    '{"name":"weigh","arguments":{"what":"it"}}\n</tool_call>',
    "llama3_1": '{"name": "weigh",  "parameters": {"what": "it"}}',
    "gptoss": "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.weigh"
    '<|channel|>commentary json<|message|>{"what":  "it"}',
    "glm4moe": "\n<think>hm</think>\n<tool_call>weigh\n<arg_key>what</arg_key>\n"
    "<arg_value>it</arg_value>\n</tool_call>",
}
ENDS = {"gptoss": "<|call|>", "glm4moe": "<|observation|>"}


@pytest.fixture(params=sorted(REPLIES))
def family(request) -> str:
    return request.param


@pytest.fixture
def tokenizer(family: str, tmp_path) -> HfTokenizer:
    return HfTokenizer(a_family(tmp_path, family))


def sampled(tokenizer: HfTokenizer, text: str, end: str) -> tuple[int, ...]:
    """A reply with its control tokens, as a model samples it."""
    (end_id,) = tokenizer.tokens_of(end)
    return (*tokenizer._framed.encode(text, add_special_tokens=False).ids, end_id)


async def gathered(answer):
    """The message of a stream, put together as clients do."""
    words, thought, calls = "", "", []
    async for piece in answer:
        delta = piece.choices[0].delta
        words += delta.content or ""
        thought += getattr(delta, "reasoning_content", None) or ""
        calls += delta.tool_calls or []
        finish = piece.choices[0].finish_reason
    return words, thought, calls, finish


@pytest.mark.parametrize("streams", [False, True])
async def test_calls_come_back_as_the_model_wrote_them(door, tokenizer, family, streams):
    client = door.client(session="s")
    asked = [{"role": "user", "content": "how heavy"}]
    said = sampled(
        tokenizer, REPLIES[family], ENDS.get(family, tokenizer.spelled([tokenizer.eos_id]))
    )

    async def ask(messages):
        return await client.chat.completions.create(
            model="tiny", messages=messages, tools=[TOOL], stream=streams
        )

    running = asyncio.create_task(ask(asked))
    request = await door.engine.next_request()
    assert set(tokenizer.end_ids) <= set(request.sampling.stop_ids)
    for token in said:
        door.engine.say(request, token)
    door.engine.end(request)
    if streams:
        words, thought, calls, finish = await gathered(await running)
    else:
        (choice,) = (await running).choices
        words, calls, finish = (
            choice.message.content or "",
            choice.message.tool_calls,
            choice.finish_reason,
        )
        thought = getattr(choice.message, "reasoning_content", None) or ""
    assert (words, thought, finish) == ("", "hm" if "hm" in REPLIES[family] else "", "tool_calls")
    (call,) = calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weigh", {"what": "it"})

    # The agent sends it back without the reasoning, and with its own spaces.
    function = {"name": "weigh", "arguments": '{"what" : "it"}'}
    back = {
        "role": "assistant",
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }
    told = {"role": "tool", "tool_call_id": call.id, "content": "two"}
    running = asyncio.create_task(ask([*asked, back, told]))
    second = await door.engine.next_request()
    first = tokenizer.first(ChatInput([Message("user", "how heavy")], [TOOL]))
    assert second.prompt[: len(first) + len(said)] == first + said
    door.engine.say(second, tokenizer.eos_id)
    door.engine.end(second)
    await running
    (line,) = door.gateway.sessions["s"].lines
    assert [segment.is_sampled for segment in line.segments] == [False, True, False, True]


async def test_other_tools_are_another_conversation(door, tokenizer):
    client = door.client(session="s")
    for tools in ([TOOL], openai.NOT_GIVEN):
        running = asyncio.create_task(
            client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "a"}], tools=tools
            )
        )
        request = await door.engine.next_request()
        door.engine.say(request, tokenizer.eos_id)
        door.engine.end(request)
        await running
    assert len(door.gateway.sessions["s"].lines) == 2
