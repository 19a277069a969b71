"""Log-probabilities over HTTP: one for each token, and tokens that spell the answer."""

import asyncio

import pytest
from gateway_support import until
from tokenizer_support import a_file

from artangram.models.hftokenizer import HfTokenizer

HELLO = [{"role": "user", "content": "hello"}]
SAID = "a \u00e9 \u732b \U0001f408!"
"""Characters of one, two, three and four bytes; a byte is a token here."""


@pytest.fixture
def tokenizer(tmp_path):
    return HfTokenizer(a_file(tmp_path, markers=["<|im_start|>", "<|im_end|>"]))


async def answered(endpoint, asking, *, streams):
    running = asyncio.create_task(asking)
    await endpoint.says(SAID, pieces=7)
    answer = await running
    return [piece async for piece in answer] if streams else [answer]


def sampled(endpoint):
    return len(endpoint.tokenizer.encode(SAID)) + 1


@pytest.mark.parametrize("streams", [False, True])
async def test_the_tokens_of_a_chat_spell_its_words(endpoint, streams):
    asking = endpoint.client().chat.completions.create(
        model="tiny", messages=HELLO, logprobs=True, stream=streams
    )
    pieces = await answered(endpoint, asking, streams=streams)
    choices = [piece.choices[0] for piece in pieces]
    words = [c.delta.content if streams else c.message.content for c in choices]
    found = [one for c in choices if c.logprobs for one in c.logprobs.content]
    assert "".join(word or "" for word in words) == SAID
    assert "".join(one.token for one in found) == SAID
    assert bytes(byte for one in found for byte in one.bytes).decode() == SAID
    assert len(found) == sampled(endpoint)


@pytest.mark.parametrize("streams", [False, True])
async def test_the_tokens_of_a_text_spell_it_and_say_where_they_begin(endpoint, streams):
    asking = endpoint.client().completions.create(
        model="tiny", prompt="the cat", logprobs=1, stream=streams
    )
    pieces = await answered(endpoint, asking, streams=streams)
    choices = [piece.choices[0] for piece in pieces]
    logprobs = [choice.logprobs for choice in choices if choice.logprobs]
    tokens = [one for some in logprobs for one in some.tokens]
    offsets = [one for some in logprobs for one in some.text_offset]
    assert "".join(choice.text for choice in choices) == "".join(tokens) == SAID
    assert offsets == [len("".join(tokens[:number])) for number in range(len(tokens))]
    assert sum(len(some.token_logprobs) for some in logprobs) == len(tokens) == sampled(endpoint)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("is_chat", [False, True])
async def test_the_very_tokens_come_with_a_stream_too(endpoint, is_chat, streams):
    client = endpoint.client(session="s")
    more = {"model": "tiny", "stream": streams, "extra_body": {"return_token_ids": True}}
    asking = (
        client.chat.completions.create(messages=HELLO, **more)
        if is_chat
        else client.completions.create(prompt="the cat", **more)
    )
    pieces = await answered(endpoint, asking, streams=streams)
    exact = pieces[-1].choices[0].artangram
    await until(lambda: not endpoint.engine.running)
    given, said = endpoint.gateway.sessions["s"].segments()
    assert exact["prompt_token_ids"] == list(given.token_ids)
    assert exact["token_ids"] == list(said.token_ids)
    assert exact["weight_versions"] == [{"version": 4, "start": 0, "end": sampled(endpoint)}]
