"""Responses and Messages with the real clients: the same conversation, token for token."""

import asyncio
import json

import pytest
from anthropic import AsyncAnthropic
from gateway_support import TOKEN, WORDS
from openai import BadRequestError

TOOLS = [{"type": "function", "name": "cat", "parameters": {"type": "object", "properties": {}}}]
CALL = '<call> {"name": "cat", "arguments": {"on": "mat"}}'


def claude(endpoint):
    return AsyncAnthropic(base_url=f"{endpoint.url}/sessions/s", api_key=TOKEN, max_retries=0)


async def told(endpoint, asking, text, **fields):
    """What is said to a request, when the engine answers it with this text."""
    running = asyncio.ensure_future(asking)
    await endpoint.says(text, **fields)
    return await running


def sampled(endpoint):
    """How many segments of each line of the session were sampled."""
    lines = endpoint.gateway.sessions["s"].lines
    return [sum(one.is_sampled for one in line.segments) for line in lines]


async def test_a_response_continues_the_conversation_by_its_id_or_by_its_items(endpoint):
    client = endpoint.client(session="s")
    first = await told(endpoint, client.responses.create(model="tiny", input="hello"), "cat dog")
    assert (first.output_text, first.status) == ("cat dog", "completed")
    assert first.usage.output_tokens == len(WORDS.encode("cat dog")) + 1
    asking = client.responses.create(model="tiny", input="dog", previous_response_id=first.id)
    second = await told(endpoint, asking, "mat")
    assert sampled(endpoint) == [2]
    said = [
        {"role": "user", "content": "hello"},
        *[item.to_dict() for item in first.output],
        {"role": "user", "content": "dog"},
        *[item.to_dict() for item in second.output],
        {"role": "user", "content": "hello"},
    ]
    await told(endpoint, client.responses.create(model="tiny", input=said), "cat")
    assert sampled(endpoint) == [3]
    with pytest.raises(BadRequestError, match="is not an answer of this session"):
        await client.responses.create(model="tiny", input="dog", previous_response_id="resp_0")


async def test_a_response_calls_functions_and_hears_what_they_said(endpoint):
    client = endpoint.client(session="s")
    asking = client.responses.create(model="tiny", input="hello", tools=TOOLS)
    first = await told(endpoint, asking, f"dog {CALL}")
    message, call = first.output
    assert (message.content[0].text, call.name, call.arguments) == ("dog", "cat", '{"on": "mat"}')
    said = [{"role": "user", "content": "hello"}, *[item.to_dict() for item in first.output]]
    said.append({"type": "function_call_output", "call_id": call.call_id, "output": "mat"})
    await told(endpoint, client.responses.create(model="tiny", input=said, tools=TOOLS), "cat")
    assert sampled(endpoint) == [2]


async def test_a_streamed_response_is_the_same_as_a_whole_one(endpoint):
    client = endpoint.client(session="s")

    async def streamed():
        async with client.responses.stream(model="tiny", input="hello", tools=TOOLS) as stream:
            kinds = [event.type async for event in stream]
            return kinds, await stream.get_final_response()

    kinds, final = await told(endpoint, streamed(), f"dog cat {CALL}", pieces=3)
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text.strip() == "dog cat"
    assert [item.type for item in final.output] == ["message", "function_call"]
    assert final.output[1].arguments == '{"on": "mat"}'


async def test_what_responses_cannot_do_is_refused_by_name(endpoint):
    client = endpoint.client(session="s")
    for fields, name in (
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"tools": [{"type": "web_search"}]}, "web_search"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"format": {"type": "xml"}}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
    ):
        with pytest.raises(BadRequestError, match=name):
            await client.responses.create(model="tiny", input="hello", **fields)


async def test_messages_continue_the_conversation_with_tools(endpoint):
    async with claude(endpoint) as client:
        tools = [{"name": "cat", "input_schema": {"type": "object"}}]
        said = [{"role": "user", "content": "hello"}]
        asked = {"model": "tiny", "max_tokens": 99, "system": "mat", "tools": tools}
        first = await told(endpoint, client.messages.create(messages=said, **asked), f"dog {CALL}")
        text, call = first.content
        assert (text.text, call.name, call.input) == ("dog", "cat", {"on": "mat"})
        assert first.stop_reason == "tool_use"
        heard = {"type": "tool_result", "tool_use_id": call.id, "content": "mat"}
        said += [
            {"role": "assistant", "content": [block.to_dict() for block in first.content]},
            {"role": "user", "content": [heard]},
        ]
        second = await told(endpoint, client.messages.create(messages=said, **asked), "cat")
        assert (second.content[0].text, second.stop_reason) == ("cat", "end_turn")
        assert second.usage.output_tokens == 2
    assert sampled(endpoint) == [2]


async def test_streamed_messages_are_the_same_as_whole_ones(endpoint):
    async with claude(endpoint) as client:
        tools = [{"name": "cat", "input_schema": {"type": "object"}}]

        async def streamed():
            async with client.messages.stream(
                model="tiny",
                max_tokens=99,
                tools=tools,
                messages=[{"role": "user", "content": "hello"}],
            ) as stream:
                return await stream.get_final_message()

        final = await told(endpoint, streamed(), f"dog cat {CALL}", pieces=3)
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert (final.content[0].text.strip(), final.content[1].input) == ("dog cat", {"on": "mat"})
    assert final.stop_reason == "tool_use"


async def test_one_conversation_goes_on_in_every_interface(endpoint):
    client = endpoint.client(session="s")
    said = [{"role": "user", "content": "hello"}]

    def go_on(words):
        said.extend([{"role": "assistant", "content": words}, {"role": "user", "content": "dog"}])

    await told(endpoint, client.chat.completions.create(model="tiny", messages=said), "cat")
    go_on("cat")
    await told(endpoint, client.responses.create(model="tiny", input=said), "dog")
    go_on("dog")
    async with claude(endpoint) as one:
        asking = one.messages.create(model="tiny", max_tokens=9, messages=said)
        await told(endpoint, asking, "mat")
    assert sampled(endpoint) == [3]


SCHEMA = {"type": "object", "properties": {"cat": {"type": "string"}}}


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_tool_can_be_forced_in_every_interface(endpoint, is_named):
    name = {"type": "function", "name": "cat"} if is_named else "required"
    nested = {"type": "function", "function": {"name": "cat"}} if is_named else "required"
    tool = {"type": "tool", "name": "cat"} if is_named else {"type": "any"}
    rest = CALL.partition('"arguments":')[2] if is_named else CALL.partition('"name": "')[2]
    client, hello = endpoint.client(session="s"), [{"role": "user", "content": "hello"}]
    chat = {"type": "function", "function": {"name": "cat", "parameters": SCHEMA}}
    asking = client.responses.create(model="tiny", input="hello", tools=TOOLS, tool_choice=name)
    response = await told(endpoint, asking, rest)
    assert [one.arguments for one in response.output] == ['{"on": "mat"}']
    asking = client.chat.completions.create(
        model="tiny", messages=hello, tools=[chat], tool_choice=nested
    )
    completion = await told(endpoint, asking, rest)
    assert completion.choices[0].message.tool_calls[0].function.name == "cat"
    async with claude(endpoint) as other:
        asking = other.messages.create(
            model="tiny",
            max_tokens=99,
            messages=hello,
            tools=[{"name": "cat", "input_schema": SCHEMA}],
            tool_choice=tool,
        )
        message = await told(endpoint, asking, rest)
    assert [(one.name, one.input) for one in message.content] == [("cat", {"on": "mat"})]
    said = WORDS.encode(rest)
    for line in endpoint.gateway.sessions["s"].lines:
        assert [one.token_ids[:-1] for one in line.segments if one.is_sampled] == [said]


async def test_a_form_can_be_asked_for_in_every_interface(endpoint):
    client, hello = endpoint.client(session="s"), [{"role": "user", "content": "hello"}]
    form = {"type": "json_schema", "name": "cat", "schema": SCHEMA}
    asking = client.responses.create(model="tiny", input="hello", text={"format": form})
    await told(endpoint, asking, "cat")
    nested = {"type": "json_schema", "json_schema": {"name": "cat", "schema": SCHEMA}}
    asking = client.chat.completions.create(model="tiny", messages=hello, response_format=nested)
    await told(endpoint, asking, "cat")
    async with claude(endpoint) as other:
        asking = other.messages.create(
            model="tiny",
            max_tokens=99,
            messages=hello,
            output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
        )
        await told(endpoint, asking, "cat")
    schemas = [json.loads(one.sampling.json_schema) for one in endpoint.engine.asked]
    assert schemas == [SCHEMA] * 3
