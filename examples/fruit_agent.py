"""An agent that knows nothing but OpenAI's client: which colour has the fruit?"""

from openai import AsyncOpenAI

# One pool of connections for all attempts; each gets its own address and key.
CLIENT = AsyncOpenAI(api_key="of each attempt", base_url="http://127.0.0.1")


async def solve(problem, llm, client):
    """One attempt. `client` is the cluster: client.trajectory(...) opens a sandbox."""
    chat = CLIENT.with_options(base_url=llm.base_url, api_key=llm.api_key)
    messages = [{"role": "user", "content": problem["fruit"]}]
    reply = await chat.chat.completions.create(model=llm.model, messages=messages)
    return reply.choices[0].message.content


def score(problem, answer):
    return float(answer == f"{problem['fruit']} {problem['colour']}")
