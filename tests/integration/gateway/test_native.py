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
async def test_calls_come_back_as_the_model_wrote_them(endpoint, tokenizer, family, streams):
    client = endpoint.client(session="s")
    asked = [{"role": "user", "content": "how heavy"}]
    said = sampled(
        tokenizer, REPLIES[family], ENDS.get(family, tokenizer.spelled([tokenizer.eos_id]))
    )

    async def ask(messages):
        return await client.chat.completions.create(
            model="tiny", messages=messages, tools=[TOOL], stream=streams
        )

    running = asyncio.create_task(ask(asked))
    request = await endpoint.engine.next_request()
    assert set(tokenizer.end_ids) <= set(request.sampling.stop_ids)
    for token in said:
        endpoint.engine.say(request, token)
    endpoint.engine.end(request)
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
    second = await endpoint.engine.next_request()
    first = tokenizer.first(ChatInput([Message("user", "how heavy")], [TOOL]))
    assert second.prompt[: len(first) + len(said)] == first + said
    endpoint.engine.say(second, tokenizer.eos_id)
    endpoint.engine.end(second)
    await running
    (line,) = endpoint.gateway.sessions["s"].lines
    assert [segment.is_sampled for segment in line.segments] == [False, True, False, True]


async def test_other_tools_are_another_conversation(endpoint, tokenizer):
    client = endpoint.client(session="s")
    for tools in ([TOOL], openai.NOT_GIVEN):
        running = asyncio.create_task(
            client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "a"}], tools=tools
            )
        )
        request = await endpoint.engine.next_request()
        endpoint.engine.say(request, tokenizer.eos_id)
        endpoint.engine.end(request)
        await running
    assert len(endpoint.gateway.sessions["s"].lines) == 2


OPENINGS = {
    "qwen3": '<think>\n\n</think>\n\n<tool_call>\n{"name": "weigh", "arguments":',
    "llama3_1": '{"name": "weigh", "parameters":',
    "gptoss": " to=functions.weigh<|channel|>commentary json<|message|>",
    "glm4moe": "\n<think></think>\n<tool_call>weigh\n",
}
RESTS = {
    "qwen3": ' {"what": "it"}}\n</tool_call>',
    "llama3_1": ' {"what": "it"}}',
    "gptoss": '{"what": "it"}',
    "glm4moe": "<arg_key>what</arg_key>\n<arg_value>it</arg_value>\n</tool_call>",
}


async def forced(endpoint, client, tokenizer, family, *, choice, streams, opening, rest):
    """The answer of a model that was made to begin with `opening` and wrote the rest."""
    running = asyncio.create_task(
        client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "how heavy"}],
            tools=[TOOL],
            tool_choice=choice,
            stream=streams,
        )
    )
    request = await endpoint.engine.next_request()
    assert tokenizer.spelled(request.prompt).endswith(opening)
    said = sampled(tokenizer, rest, ENDS.get(family, tokenizer.spelled([tokenizer.eos_id])))
    for token in said:
        endpoint.engine.say(request, token)
    endpoint.engine.end(request)
    return await running, said


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("is_named", [False, True])
async def test_a_forced_call_begins_as_the_template_begins_it_and_only_the_rest_is_sampled(
    endpoint, tokenizer, family, streams, is_named
):
    opening, rest = OPENINGS[family], RESTS[family]
    if not is_named:
        opening, _, more = opening.partition("weigh")
        rest = f"weigh{more}{rest}"
    choice = {"type": "function", "function": {"name": "weigh"}} if is_named else "required"
    how = {"choice": choice, "streams": streams, "opening": opening, "rest": rest}
    answer, said = await forced(endpoint, endpoint.client(session="s"), tokenizer, family, **how)
    if streams:
        words, thought, calls, finish = await gathered(answer)
    else:
        message, finish = answer.choices[0].message, answer.choices[0].finish_reason
        words, thought, calls = message.content or "", "", message.tool_calls
    assert (words, thought, finish) == ("", "", "tool_calls")
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("weigh", {"what": "it"})
    ]
    line = endpoint.gateway.sessions["s"].line
    assert [one.token_ids for one in line.segments if one.is_sampled] == [said]


@pytest.mark.parametrize("family", ["qwen3", "glm4moe"])
async def test_a_reply_with_one_call_ends_with_it_where_no_other_may_follow(endpoint, tokenizer):
    client = endpoint.client(session="s")
    asked = {"model": "tiny", "tools": [TOOL], "parallel_tool_calls": False}
    messages = [{"role": "user", "content": "how heavy"}]
    running = asyncio.create_task(client.chat.completions.create(messages=messages, **asked))
    request = await endpoint.engine.next_request()
    assert tokenizer.tokens_of("</tool_call>")[0] in request.sampling.stop_ids
    body = '<tool_call>\n{"name": "weigh", "arguments": {"what": "it"}}\n'
    for token in sampled(tokenizer, body, "</tool_call>"):
        endpoint.engine.say(request, token)
    endpoint.engine.end(request)
    message = (await running).choices[0].message
    assert [call.function.name for call in message.tool_calls] == ["weigh"]
    heard = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "2"}
    said = [*messages, message.model_dump(exclude_none=True), heard]
    running = asyncio.create_task(client.chat.completions.create(messages=said, **asked))
    after = await endpoint.engine.next_request()
    assert after.prompt[: len(request.prompt)] == request.prompt  # The same line goes on.
    assert len(endpoint.gateway.sessions["s"].lines) == 1
    endpoint.engine.end(after)
    await running


@pytest.mark.parametrize("family", ["llama3_1"])
async def test_several_calls_cannot_be_prevented_where_no_token_ends_one(endpoint, tokenizer):
    with pytest.raises(openai.BadRequestError, match="parallel_tool_calls"):
        await endpoint.client().chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hm"}],
            tools=[TOOL],
            parallel_tool_calls=False,
        )


WORDS_BEGIN = {
    "qwen3": "<think>\n\n</think>\n\n",
    "llama3_1": "<|end_header_id|>\n\n",
    "gptoss": "<|start|>assistant<|channel|>final<|message|>",
    "glm4moe": "<|assistant|>\n<think></think>\n",
}


async def test_an_answer_in_a_form_begins_with_its_words(endpoint, tokenizer, family):
    running = asyncio.create_task(
        endpoint.client().chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "how heavy"}],
            response_format={"type": "json_object"},
        )
    )
    request = await endpoint.engine.next_request()
    assert tokenizer.spelled(request.prompt).endswith(WORDS_BEGIN[family])
    assert json.loads(request.sampling.json_schema) == {"type": "object"}
    for token in sampled(tokenizer, '{"kg": 2}', tokenizer.spelled([tokenizer.eos_id])):
        endpoint.engine.say(request, token)
    endpoint.engine.end(request)
    assert (await running).choices[0].message.content == '{"kg": 2}'


@pytest.mark.parametrize("family", ["qwen3"])
@pytest.mark.parametrize("name", ["reasoning_effort", "chat_template_kwargs"])
async def test_an_option_that_the_template_does_not_use_is_refused(endpoint, tokenizer, name):
    value = "low" if name == "reasoning_effort" else {"thinks": True}
    with pytest.raises(openai.BadRequestError, match=name):
        await endpoint.client().chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hm"}],
            extra_body={name: value},
        )
    assert endpoint.engine.asked == []
