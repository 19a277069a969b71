"""Fields of a request: obeyed, harmless, or refused by name, and never ignored in silence."""

import asyncio
from typing import get_type_hints

import aiohttp
import msgspec
import openai
import pytest
from gateway_support import TOKEN, WORDS
from openai.types import completion_create_params as text
from openai.types.chat import completion_create_params as chats

from artangram.gateway import Gateway
from artangram.gateway.engines.scripted import ScriptedEngine
from artangram.gateway.http import application, serving
from artangram.gateway.http.wire import HARMLESS, ChatRequest, CompletionRequest, decoded
from artangram.models.tokenizer import SYSTEM, USER, Message

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "sat"}}


async def chat(client, messages=HELLO, **more):
    return await client.chat.completions.create(model="tiny", messages=messages, **more)


async def asked(endpoint, **more):
    """What the engine is asked, for a chat with these fields."""
    running = asyncio.create_task(chat(endpoint.client(), **more))
    await endpoint.says("cat")
    await running
    return endpoint.engine.asked[-1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", 2.1),
        ("top_p", 0),
        ("n", 0),
        ("n", 129),
        ("max_tokens", 0),
        ("max_completion_tokens", 0),
        ("stop", [""]),
        ("top_logprobs", 3),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("logit_bias", {"7": 101}),
        ("reasoning_effort", "low"),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "cat"}}),
        ("tools", [{"type": "function", "function": {}}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "sat"}}),
        ("tool_choice", {"type": "allowed_tools", "allowed_tools": {}}),
        ("modalities", ["text", "audio"]),
        ("messages", []),
        ("messages", [{"role": "pope", "content": "hello"}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
        ("messages", [{"role": "assistant", "function_call": {"name": "sat", "arguments": "{}"}}]),
    ],
)
async def test_what_cannot_be_done_is_refused_with_the_name_of_the_field(endpoint, field, value):
    with pytest.raises(openai.BadRequestError, match=field):
        await chat(endpoint.client(), **{"messages": HELLO, field: value})
    assert endpoint.engine.asked == []


@pytest.mark.parametrize(
    ("field", "value"), [("logprobs", 5), ("best_of", 3), ("echo", True), ("suffix", "on")]
)
async def test_so_it_is_for_a_text(endpoint, field, value):
    with pytest.raises(openai.BadRequestError, match=field):
        await endpoint.client().completions.create(model="tiny", prompt="cat", **{field: value})
    assert endpoint.engine.asked == []


async def test_a_forced_tool_has_to_be_offered(endpoint):
    other = {"type": "function", "function": {"name": "lie"}}
    with pytest.raises(openai.BadRequestError, match="'lie' is not offered"):
        await chat(endpoint.client(), tools=[TOOL], tool_choice=other)
    form = {"type": "json_object"}
    with pytest.raises(openai.BadRequestError, match="response_format"):
        await chat(endpoint.client(), tools=[TOOL], response_format=form)
    assert endpoint.engine.asked == []


async def test_several_calls_at_once_cannot_be_prevented_where_no_token_ends_a_call(endpoint):
    with pytest.raises(openai.BadRequestError, match="parallel_tool_calls"):
        await chat(endpoint.client(), tools=[TOOL], parallel_tool_calls=False)
    await asked(endpoint, tools=[TOOL], parallel_tool_calls=True)


@pytest.mark.parametrize(
    "name", ["min_tokens", "length_penalty", "use_beam_search", "functions", "guided_json"]
)
async def test_a_field_that_nobody_knows_is_refused_unless_it_is_null(endpoint, name):
    with pytest.raises(openai.BadRequestError) as refused:
        await chat(endpoint.client(), extra_body={name: 1})
    assert refused.value.param == name
    await asked(endpoint, extra_body={name: None})


@pytest.mark.parametrize(
    ("fields", "record"),
    [
        (get_type_hints(chats.CompletionCreateParamsBase), ChatRequest),
        (get_type_hints(text.CompletionCreateParamsBase), CompletionRequest),
    ],
)
def test_nothing_that_is_ignored_would_change_an_answer(fields, record):
    """Every field that OpenAI's client can send, but for those of which we know what they mean."""
    refused = {
        "audio",
        "function_call",
        "functions",
        "moderation",
        "reasoning_effort",
        "verbosity",
        "web_search_options",
    }
    assert fields.keys() - HARMLESS - set(record.__struct_fields__) <= refused


@pytest.mark.parametrize("record", [ChatRequest, CompletionRequest], ids=["a chat", "a text"])
def test_a_field_that_is_null_is_as_if_it_were_not_there(record):
    needed = (
        {"model": "tiny", "messages": HELLO}
        if record is ChatRequest
        else {"model": "tiny", "prompt": "cat"}
    )
    nulls = dict.fromkeys(set(record.__struct_fields__) - needed.keys())
    found = [decoded(msgspec.json.encode(one), record) for one in (needed, nulls | needed)]
    assert found[0] == found[1]


async def test_harmless_fields_change_nothing(endpoint):
    plain = await asked(endpoint)
    more = await asked(endpoint, user="me", metadata={"a": "b"}, store=True, service_tier="auto")
    assert (more.prompt, more.sampling) == (plain.prompt, plain.sampling)


async def test_tokens_are_sampled_as_their_caller_says_or_not_at_all(endpoint):
    sampling = {"max_tokens": 5, "typical_p": 0.5}
    async with aiohttp.ClientSession(
        endpoint.url, headers={"Authorization": f"Bearer {TOKEN}"}
    ) as http:
        answer = await http.post("/v1/generate", json={"token_ids": [1], "sampling": sampling})
        assert (answer.status, "typical_p" in await answer.text()) == (400, True)
    assert endpoint.engine.asked == []


async def test_the_newer_name_of_the_limit_counts(endpoint):
    request = await asked(endpoint, max_tokens=50, max_completion_tokens=7)
    assert request.sampling.max_tokens == 7


async def test_how_to_sample_reaches_the_engine_and_choices_have_seeds_of_their_own(endpoint):
    how = {"temperature": 0.5, "top_p": 0.9, "seed": 11, "max_tokens": 9}
    running = asyncio.create_task(chat(endpoint.client(), n=2, **how))
    requests = list(await endpoint.engine.next_requests(2))
    for request in requests:
        endpoint.engine.say(request, WORDS.eos_id)
        endpoint.engine.end(request)
    await running
    found = [(r.sampling.temperature, r.sampling.top_p, r.sampling.seed) for r in requests]
    assert found == [(0.5, 0.9, 11), (0.5, 0.9, 12)]
    assert {r.sampling.max_tokens for r in requests} == {9}


SHAPED = {
    **{"top_k": 7, "min_p": 0.25, "repetition_penalty": 1.5, "seed": 3},
    **{"presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"4": -1.5}},
}


def as_chat(client, extra):
    return client.chat.completions.create(model="tiny", messages=HELLO, extra_body=extra)


def as_response(client, extra):
    return client.responses.create(model="tiny", input="hello", extra_body=extra)


def as_text(client, extra):
    return client.completions.create(model="tiny", prompt="hello", extra_body=extra)


def as_message(client, extra):
    body = {"model": "tiny", "max_tokens": 9, "messages": HELLO, **extra}
    return client.post("/messages", body=body, cast_to=object)


@pytest.mark.parametrize("ask", [as_chat, as_response, as_text, as_message])
async def test_every_interface_passes_on_how_to_sample(endpoint, ask):
    running = asyncio.create_task(ask(endpoint.client(), SHAPED))
    await endpoint.says("cat")
    await running
    found = endpoint.engine.asked[-1].sampling
    wanted = {**SHAPED, "logit_bias": {4: -1.5}}
    assert {name: getattr(found, name) for name in SHAPED} == wanted


async def test_all_tokens_may_be_asked_for_as_vllm_has_it(endpoint):
    assert (await asked(endpoint, extra_body={"top_k": -1})).sampling.top_k == 0


async def test_alternatives_are_told_beside_each_token(endpoint):
    asking = chat(endpoint.client(), logprobs=True, top_logprobs=2)
    running = asyncio.create_task(asking)
    request = await endpoint.engine.next_request()
    cat, dog = WORDS.encode("cat")[0], WORDS.encode("dog")[0]
    tops = (((cat, -0.5), (dog, -1.5)), ((WORDS.eos_id, -0.25), (cat, -2.0)))
    endpoint.engine.say(request, cat, WORDS.eos_id, tops=tops)
    endpoint.engine.end(request)
    content = (await running).choices[0].logprobs.content
    assert request.sampling.top_logprobs == 2
    assert [(one.token, one.logprob) for one in content[0].top_logprobs] == [
        ("cat", -0.5),
        ("dog", -1.5),
    ]
    assert len(content[1].top_logprobs) == 2


async def test_what_shaped_an_answer_is_in_its_segment(endpoint):
    client = endpoint.client(session="s")
    for extra in ({"top_k": 2, "temperature": 0}, {}):
        running = asyncio.create_task(chat(client, extra_body=extra))
        await endpoint.says("cat")
        await running
    lines = endpoint.gateway.sessions["s"].lines
    shaped = [one.shaped_by for line in lines for one in line.segments if one.is_sampled]
    assert shaped == [("temperature", "top_k"), ()]


async def test_developers_speak_as_the_system_and_parts_are_one_text(endpoint):
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]
    messages = [{"role": "developer", "content": "sat"}, {"role": "user", "content": parts}]
    request = await asked(endpoint, messages=messages)
    said = [Message(SYSTEM, "sat"), Message(USER, "the cat")]
    assert request.prompt == WORDS.render(said) + WORDS.opening()


@pytest.mark.parametrize("message", [{"content": ""}, {"content": None}, {"content": []}, {}])
async def test_who_says_nothing_has_said_an_empty_message(endpoint, message):
    request = await asked(endpoint, messages=[{"role": "user", **message}])
    assert request.prompt == WORDS.render([Message(USER, "")]) + WORDS.opening()


def an_openai(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=TOKEN)


async def test_an_engine_that_cannot_hold_to_a_form_refuses_it_by_its_name():
    gateway = Gateway()
    gateway.add(ScriptedEngine(lambda request: [WORDS.eos_id]))
    app = application(gateway, tokenizer=WORDS, model="tiny", token=TOKEN)
    async with serving(app) as url, an_openai(url) as client:
        for streams in (False, True):
            with pytest.raises(openai.BadRequestError, match="vLLM that can") as refused:
                await chat(client, response_format={"type": "json_object"}, stream=streams)
            assert refused.value.param == "response_format"
    await gateway.aclose()
