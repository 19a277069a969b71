"""Any OpenAI client is a trajectory: what it says and gets is in the session, token for token."""

import asyncio
import json

import openai
import pytest
from gateway_support import WORDS

from artangram.models.tokenizer import ASSISTANT, USER, Message

HELLO = [{"role": "user", "content": "hello"}]
WEATHER = {
    "type": "function",
    "function": {"name": "sat", "parameters": {"type": "object", "properties": {}}},
}


async def chat(client, messages=HELLO, **more):
    return await client.chat.completions.create(
        model="tiny", messages=messages, **{"max_tokens": 50, **more}
    )


async def test_a_chat_answers_with_words_usage_and_logprobs(endpoint):
    asking = asyncio.create_task(chat(endpoint.client(), logprobs=True))
    await endpoint.says("the cat sat")
    answer = await asking
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("the cat sat", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 4)
    said = [part.logprob for part in choice.logprobs.content]
    assert said == [-float(token) for token in (*WORDS.encode("the cat sat"), WORDS.eos_id)]
    assert dict(endpoint.gateway.sessions) == {}


async def test_a_stream_gives_the_same_words_in_pieces(endpoint):
    stream = asyncio.create_task(
        chat(endpoint.client(), stream=True, stream_options={"include_usage": True})
    )
    await endpoint.says("the cat sat on a mat", pieces=3)
    pieces = [piece async for piece in await stream]
    words = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert words == "the cat sat on a mat"
    assert len(pieces) > 4
    assert pieces[-2].choices[0].finish_reason == "stop"
    assert pieces[-1].usage.completion_tokens == 7


async def test_the_next_request_of_a_session_reuses_the_exact_tokens(endpoint):
    client = endpoint.client(session="s")
    first = asyncio.create_task(chat(client))
    # An odd way to write it: encoding the text again would give other tokens.
    request = await endpoint.engine.next_request()
    odd = [WORDS.encode(letter)[0] for letter in "cat"]
    endpoint.engine.say(request, *odd, WORDS.eos_id)
    endpoint.engine.end(request)
    reply = (await first).choices[0].message
    assert WORDS.encode(reply.content) != tuple(odd)
    messages = [*HELLO, reply.to_dict(), {"role": "user", "content": "sat"}]
    second = asyncio.create_task(chat(client, messages))
    await endpoint.says("mat")
    await second
    prefix = WORDS.render([Message(USER, "hello")]) + WORDS.opening()
    assert endpoint.engine.asked[-1].prompt[: len(prefix) + 4] == (*prefix, *odd, WORDS.eos_id)
    session = endpoint.gateway.sessions["s"]
    assert [segment.is_sampled for segment in session.segments()] == [False, True, False, True]
    assert session.oldest_version == 4


async def test_changed_words_fork_at_the_last_message_that_is_the_same(endpoint):
    client = endpoint.client(session="s")
    first = asyncio.create_task(chat(client))
    await endpoint.says("the cat")
    reply = (await first).choices[0].message.to_dict()
    for word in ("sat", "mat"):
        more = asyncio.create_task(chat(client, [*HELLO, reply, {"role": "user", "content": word}]))
        await endpoint.says("dog")
        await more
    session = endpoint.gateway.sessions["s"]
    main, fork = session.lines
    shared = main.token_ids(len(main.segments[0].token_ids + main.segments[1].token_ids))
    assert fork.segments[0].token_ids == shared
    assert not fork.segments[0].is_sampled
    assert fork.segments[-1].is_sampled


async def test_an_edited_reply_is_given_not_sampled(endpoint):
    client = endpoint.client(session="s")
    first = asyncio.create_task(chat(client))
    await endpoint.says("the cat")
    await first
    edited = [*HELLO, {"role": "assistant", "content": "a dog"}, *HELLO]
    more = asyncio.create_task(chat(client, edited))
    await endpoint.says("mat")
    await more
    fork = endpoint.gateway.sessions["s"].lines[1]
    given = [Message(USER, "hello"), Message(ASSISTANT, "a dog"), Message(USER, "hello")]
    tokens = tuple(t for s in fork.segments if not s.is_sampled for t in s.token_ids)
    assert tokens == WORDS.render(given) + WORDS.opening()


async def test_n_choices_are_n_lines_of_one_session(endpoint):
    asking = asyncio.create_task(chat(endpoint.client(session="s"), n=3))
    requests = await endpoint.engine.next_requests(3)
    for request, word in zip(requests, ("cat", "dog", "mat"), strict=True):
        endpoint.engine.say(request, *WORDS.encode(word), WORDS.eos_id)
        endpoint.engine.end(request)
    answer = await asking
    assert [c.message.content for c in answer.choices] == ["cat", "dog", "mat"]
    assert len(endpoint.gateway.sessions["s"].lines) == 3


async def test_streamed_choices_are_told_apart(endpoint):
    asking = asyncio.create_task(chat(endpoint.client(), n=2, stream=True))
    requests = await endpoint.engine.next_requests(2)
    for request, word in zip(requests, ("cat", "dog"), strict=True):
        endpoint.engine.say(request, *WORDS.encode(word), WORDS.eos_id)
        endpoint.engine.end(request)
    words = ["", ""]
    async for piece in await asking:
        words[piece.choices[0].index] += piece.choices[0].delta.content or ""
    assert words == ["cat", "dog"]


@pytest.mark.parametrize("streams", [False, True])
async def test_choices_that_cannot_be_made_are_one_error(endpoint, streams):
    long = [{"role": "user", "content": "cat " * 2000}]
    with pytest.raises(openai.BadRequestError, match="shorten it"):
        await chat(endpoint.client(), long, n=3, stream=streams)
    asking = asyncio.create_task(chat(endpoint.client(session="s"), n=3, stream=streams))
    await endpoint.engine.next_requests(3)
    await endpoint.gateway.abort("s")
    with pytest.raises(openai.APIStatusError, match="the turn was aborted"):
        await asking
    assert (endpoint.engine.running, endpoint.gateway.sessions["s"].oldest_version) == ([], None)


CALL = '<call> {"name": "sat", "arguments": {"on": "mat"}}'


@pytest.mark.parametrize("streams", [False, True])
async def test_tool_calls_are_read_from_the_reply_and_match_when_they_come_back(endpoint, streams):
    client = endpoint.client(session="s")
    asking = asyncio.create_task(chat(client, tools=[WEATHER], stream=streams))
    await endpoint.says(f"the cat {CALL}", pieces=4)
    if streams:
        words, calls = "", []
        async for piece in await asking:
            words += piece.choices[0].delta.content or ""
            calls += piece.choices[0].delta.tool_calls or []
            finish = piece.choices[0].finish_reason
    else:
        choice = (await asking).choices[0]
        words, calls, finish = (
            choice.message.content,
            choice.message.tool_calls,
            (choice.finish_reason),
        )
    assert words.strip() == "the cat"
    assert finish == "tool_calls"
    (call,) = calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("sat", {"on": "mat"})
    back = {
        "role": "assistant",
        "content": words,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                # Frameworks parse the arguments and write them anew.
                "function": {"name": "sat", "arguments": '{"on":"mat"}'},
            }
        ],
    }
    result = {"role": "tool", "tool_call_id": call.id, "content": "a dog"}
    more = asyncio.create_task(chat(client, [*HELLO, back, result], tools=[WEATHER]))
    await endpoint.says("mat")
    await more
    assert len(endpoint.gateway.sessions["s"].lines) == 1


async def test_without_tools_a_call_is_just_words(endpoint):
    asking = asyncio.create_task(chat(endpoint.client()))
    await endpoint.says(CALL)
    choice = (await asking).choices[0]
    assert (choice.message.content, choice.message.tool_calls) == (CALL, None)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_stop_text_ends_the_reply_and_is_not_part_of_it(endpoint, streams):
    client = endpoint.client(session="s")
    asking = asyncio.create_task(chat(client, stop="on a", stream=streams))
    await endpoint.says("the cat sat on a mat and said", pieces=9, ends=False)
    if streams:
        words = ""
        async for piece in await asking:
            words += piece.choices[0].delta.content or ""
    else:
        words = (await asking).choices[0].message.content
    assert words == "the cat sat "
    sampled = endpoint.gateway.sessions["s"].segments()[-1].token_ids
    assert WORDS.decode(sampled) == "the cat sat on a"
    assert endpoint.engine.running == []


async def test_completions_take_text_and_tokens(endpoint):
    client = endpoint.client(session="s")
    for prompt in ("the cat", "the cat sat on"):
        asking = asyncio.create_task(
            client.completions.create(model="tiny", prompt=prompt, max_tokens=9, logprobs=1)
        )
        request = await endpoint.engine.next_request()
        endpoint.engine.say(request, *WORDS.encode("sat" if prompt == "the cat" else "a mat"))
        endpoint.engine.end(request)
        answer = await asking
    assert answer.choices[0].text == " a mat"
    assert len(answer.choices[0].logprobs.token_logprobs) == len(WORDS.encode("a mat"))
    (line,) = endpoint.gateway.sessions["s"].lines
    more = asyncio.create_task(
        client.completions.create(model="tiny", prompt=[*line.token_ids(), 12], stream=True)
    )
    await endpoint.says("dog")
    text = "".join([piece.choices[0].text async for piece in await more])
    assert text.strip() == "dog"
    assert len(endpoint.gateway.sessions["s"].lines) == 1


async def test_several_prompts_are_counted_once_each(endpoint):
    asking = asyncio.create_task(
        endpoint.client().completions.create(model="tiny", prompt=[[11, 12, 13], [14]], n=2)
    )
    for request in await endpoint.engine.next_requests(4):
        endpoint.engine.say(request, 15)
        endpoint.engine.end(request)
    answer = await asking
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 4)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]


async def test_models_are_listed(endpoint):
    client = endpoint.client()
    (model,) = (await client.models.list()).data
    assert model == await client.models.retrieve("tiny")
    with pytest.raises(openai.NotFoundError, match="use 'tiny'"):
        await client.models.retrieve("some/other")


async def test_a_wrong_token_an_unknown_model_and_an_oversize_prompt_are_refused(endpoint):
    with pytest.raises(openai.AuthenticationError):
        await chat(endpoint.client(token="wrong"))
    with pytest.raises(openai.NotFoundError, match="there is no model") as unknown:
        await endpoint.client().chat.completions.create(model="huge", messages=HELLO)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="shorten it") as oversize:
        await chat(endpoint.client(), [{"role": "user", "content": "cat " * 2000}])
    assert oversize.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="shorten it"):
        await chat(endpoint.client(), [{"role": "user", "content": "cat " * 2000}], stream=True)
    assert (dict(endpoint.gateway.sessions), endpoint.engine.running) == ({}, [])
