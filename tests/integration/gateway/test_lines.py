"""Which line of its session a request continues: the model reads what its caller said, no more."""

import asyncio
import gc

import pytest
from gateway_support import WORDS

from artangram.gateway.session import Session
from artangram.models.tokenizer import USER, Message

HELLO = {"role": "user", "content": "hello"}


async def chat(client, *messages):
    return await client.chat.completions.create(model="tiny", messages=list(messages))


async def completion(client, prompt, **more):
    return await client.completions.create(model="tiny", prompt=prompt, **more)


async def answered(endpoint, asking, text):
    """What the door answers, when the engine says this."""
    running = asyncio.create_task(asking)
    await endpoint.says(text)
    return await running


async def both(endpoint, *asking):
    """Two requests at once; the engine answers when it has both."""
    running = []
    for number, one in enumerate(asking, start=1):
        running.append(asyncio.create_task(one))
        requests = await endpoint.engine.next_requests(number)
    for request in list(requests):
        endpoint.engine.say(request, *WORDS.encode("dog"), WORDS.eos_id)
        endpoint.engine.end(request)
    return [await one for one in running]


def tokens_of(endpoint):
    return [line.token_ids() for line in endpoint.gateway.sessions["s"].lines]


def prompt_of(*texts):
    return WORDS.render([Message(USER, text) for text in texts]) + WORDS.opening()


def sessions_in_memory():
    gc.collect()
    return sum(type(one) is Session for one in gc.get_objects())


@pytest.mark.parametrize("asked", [chat, completion])
async def test_a_session_that_nobody_named_ends_with_its_request(endpoint, asked):
    client, said = endpoint.client(), HELLO if asked is chat else "the cat"
    await answered(endpoint, asked(client, said), "sat")
    before = sessions_in_memory()
    for _ in range(3):
        await answered(endpoint, asked(client, said), "sat")
    assert sessions_in_memory() <= before


@pytest.mark.parametrize("is_chat_first", [False, True])
async def test_a_chat_and_a_text_at_once_do_not_share_a_line(endpoint, is_chat_first):
    client = endpoint.client(session="s")
    asking = [chat(client, HELLO), completion(client, "the cat")]
    await both(endpoint, *(asking if is_chat_first else reversed(asking)))
    dog = (*WORDS.encode("dog"), WORDS.eos_id)
    expected = [(*prompt_of("hello"), *dog), (*WORDS.encode("the cat"), *dog)]
    assert sorted(tokens_of(endpoint)) == sorted(expected)


async def test_a_chat_does_not_go_on_from_tokens_that_are_none_of_its_messages(endpoint):
    client = endpoint.client(session="s")
    first = await answered(endpoint, chat(client, HELLO), "the cat")
    (line,) = tokens_of(endpoint)
    await answered(endpoint, completion(client, [*line, 12]), "mat")
    said = first.choices[0].message.to_dict()
    await answered(endpoint, chat(client, HELLO, said, HELLO), "dog")
    main, fork = endpoint.gateway.sessions["s"].lines
    assert main.token_ids(len(line)) == fork.token_ids(len(line)) == line
    assert endpoint.engine.asked[-1].prompt == (*line, *prompt_of("hello"))


async def test_a_text_does_not_go_on_from_tokens_that_are_none_of_it(endpoint):
    client = endpoint.client(session="s")
    first = await answered(endpoint, completion(client, "the cat"), "sat")
    (line,) = tokens_of(endpoint)
    await answered(endpoint, completion(client, [*line, 12]), "mat")
    prompt = f"the cat{first.choices[0].text} on"
    await answered(endpoint, completion(client, prompt), "a dog")
    assert endpoint.engine.asked[-1].prompt == WORDS.encode(prompt)


@pytest.mark.parametrize(
    ("more", "lines"), [(":6", 1), ("7", 2)], ids=["with the stop text", "without"]
)
async def test_who_goes_on_after_a_stop_text_is_taken_at_his_word(endpoint, more, lines):
    client = endpoint.client(session="s")
    asking = asyncio.create_task(completion(client, "12", stop=":"))
    await endpoint.says("34:5", ends=False)
    prompt = f"12{(await asking).choices[0].text}{more}"
    await answered(endpoint, completion(client, prompt), "8")
    assert WORDS.decode(endpoint.engine.asked[-1].prompt) == prompt == f"1234{more}"
    assert len(tokens_of(endpoint)) == lines


@pytest.mark.parametrize("streams", [False, True])
async def test_a_text_can_be_put_together_from_prompt_and_answer(endpoint, streams):
    client, prompt = endpoint.client(session="s"), "the cat"
    for said in ("sat on", "a mat"):
        asking = asyncio.create_task(completion(client, prompt, stream=streams, logprobs=0))
        request = await endpoint.engine.next_request()
        endpoint.engine.say(request, *WORDS.encode(said))
        endpoint.engine.end(request)
        answer = await asking
        pieces = [piece async for piece in answer] if streams else [answer]
        choices = [piece.choices[0] for piece in pieces]
        spelled = [token for one in choices if one.logprobs for token in one.logprobs.tokens]
        prompt += "".join(choice.text for choice in choices)
        assert prompt.endswith("".join(spelled))
    (line,) = tokens_of(endpoint)
    assert WORDS.decode(line) == prompt == "the cat sat on a mat"


async def test_a_text_goes_on_as_if_it_had_been_one(endpoint):
    client = endpoint.client(session="s")
    first = await answered(endpoint, completion(client, "the cat"), "sat")
    prompt = f"the cat{first.choices[0].text} on a mat"
    await answered(endpoint, completion(client, prompt), "dog")
    read = endpoint.engine.asked[-1].prompt
    assert [token for token in read if token != WORDS.eos_id] == list(WORDS.encode(prompt))
    assert len(tokens_of(endpoint)) == 1
