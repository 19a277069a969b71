"""Agents of the tests: real clients that remember which tokens they were given.

They speak the language of `small`: a direction in, the direction and a verb out.
"""

import asyncio

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from integration.pipeline.small import RIGHT

HEARD: dict[str, list[tuple[int, ...]]] = {}
"""Answers by the key of the attempt: token ids, as the gateway says they were sampled."""
COUNTED: dict[str, list[int]] = {}
"""Tokens of the answers, by the key of the attempt, where an interface gives no ids."""
EXACT = {"return_token_ids": True}


def problems(seed):
    return [{"word": word} for word in RIGHT] * 50


def few(seed):
    return [{"word": word} for word in RIGHT]


def chat(llm):
    plain = DefaultAsyncHttpxClient(verify=False)  # Reading certificates takes long.
    return AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0, http_client=plain)


async def asked(client, llm, messages, **fields):
    """One request; what came of it is remembered."""
    found = await client.chat.completions.create(
        model=llm.model, messages=messages, extra_body=EXACT, **{"max_tokens": 4, **fields}
    )
    exact = found.choices[0].artangram
    HEARD.setdefault(llm.api_key, []).append(tuple(exact["token_ids"]))
    return found.choices[0].message.content


async def once(problem, llm, client):
    async with chat(llm) as one:
        return await asked(one, llm, [{"role": "user", "content": problem["word"]}])


def score(problem, answer):
    word = problem["word"]
    return float(answer == f"{word} {RIGHT[word]}") if answer is not None else 0.0


async def turns(problem, llm, client):
    """Three turns of one conversation; the last counts."""
    said = []
    async with chat(llm) as one:
        for _ in range(3):
            said.append({"role": "user", "content": problem["word"]})
            said.append({"role": "assistant", "content": await asked(one, llm, said)})
    return said[-1]["content"]


def blocking(problem, llm, client):
    """An agent that knows no asyncio."""
    from openai import DefaultHttpxClient, OpenAI

    plain = DefaultHttpxClient(verify=False)
    with OpenAI(base_url=llm.base_url, api_key=llm.api_key, http_client=plain) as one:
        found = one.chat.completions.create(
            model="any name at all",
            messages=[{"role": "user", "content": problem["word"]}],
            max_tokens=4,
            extra_body=EXACT,
        )
    HEARD.setdefault(llm.api_key, []).append(tuple(found.choices[0].artangram["token_ids"]))
    return found.choices[0].message.content


def user(text):
    return {"role": "user", "content": text}


async def delegating(problem, llm, client):
    """Two sub-agents side by side, then the main conversation goes on."""
    async with chat(llm) as one:
        main = [user(problem["word"])]
        main.append({"role": "assistant", "content": await asked(one, llm, main)})
        subs = [asked(one, llm, [user(f"{word} {problem['word']}")]) for word in ("up", "down")]
        await asyncio.gather(*subs)
        return await asked(one, llm, [*main, user(problem["word"])])


async def compacting(problem, llm, client):
    """Forgets what it said: the third turn begins with a summary."""
    async with chat(llm) as one:
        said = [user(problem["word"])]
        said.append({"role": "assistant", "content": await asked(one, llm, said)})
        await asked(one, llm, [*said, user("up")])
        return await asked(one, llm, [user("down"), user(problem["word"])])


async def stripping(problem, llm, client):
    """Sends back only the first word of what the model said, as if the rest were its reasoning."""
    async with chat(llm) as one:
        said = [user(problem["word"])]
        heard = await asked(one, llm, said)
        kept = {"role": "assistant", "content": " ".join(heard.split()[:1])}
        return await asked(one, llm, [*said, kept, user(problem["word"])])


async def cool(problem, llm, client):
    """Samples as it likes, and differently in each turn."""
    async with chat(llm) as one:
        said = [user(problem["word"])]
        said.append({"role": "assistant", "content": await asked(one, llm, said, temperature=0.5)})
        return await asked(one, llm, [*said, user(problem["word"])], temperature=1.5)


async def forcing(problem, llm, client):
    """A call that the gateway begins for the model, then an answer of its own."""
    tool = {"type": "function", "function": {"name": problem["word"]}}
    async with chat(llm) as one:
        said = [user(problem["word"])]
        heard = await asked(one, llm, said, tools=[tool], tool_choice=tool)
        said += [{"role": "assistant", "content": heard}, user(problem["word"])]
        return await asked(one, llm, said, tools=[tool])


async def responding(problem, llm, client):
    """OpenAI's Responses: the second turn names the first."""
    async with chat(llm) as one:
        asked = {"model": llm.model, "input": problem["word"], "max_output_tokens": 4}
        first = await one.responses.create(**asked)
        second = await one.responses.create(**asked, previous_response_id=first.id)
        COUNTED.setdefault(llm.api_key, []).extend(
            [first.usage.output_tokens, second.usage.output_tokens]
        )
        return second.output_text


async def messaging(problem, llm, client):
    """Anthropic's Messages."""
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    plain = DefaultAsyncHttpxClient(verify=False)
    asked = {"model": "claude", "max_tokens": 4}
    async with AsyncAnthropic(base_url=llm.url, api_key=llm.api_key, http_client=plain) as one:
        said = [user(problem["word"])]
        first = await one.messages.create(messages=said, **asked)
        words = "".join(block.text for block in first.content)
        said += [{"role": "assistant", "content": words}, user(problem["word"])]
        second = await one.messages.create(messages=said, **asked)
        COUNTED.setdefault(llm.api_key, []).extend(
            [first.usage.output_tokens, second.usage.output_tokens]
        )
        return "".join(block.text for block in second.content)
