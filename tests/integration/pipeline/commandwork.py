"""Commands of the tests, and how they are scored."""

from integration.pipeline.small import RIGHT

PLAIN = """
import json, os, sys, urllib.request
asked = {"model": "any", "messages": [{"role": "user", "content": sys.argv[1]}], "max_tokens": 4}
for _ in range(2):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(asked).encode(),
        headers={
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        },
    )
    said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    asked["messages"] += [{"role": "assistant", "content": said}, asked["messages"][0]]
open("answer.txt", "w").write(said)
"""
"""An agent of two turns with nothing but Python; it leaves its answer in a file."""

SDK = """
import sys
from openai import OpenAI, DefaultHttpxClient
client = OpenAI(http_client=DefaultHttpxClient(verify=False))
said = [{"role": "user", "content": sys.argv[1]}]
done = client.chat.completions.create(model="any", messages=said, max_tokens=4)
open("answer.txt", "w").write(done.choices[0].message.content)
"""

ELSEWHERE = """
import socket, sys, urllib.request
found = []
for url in sys.argv[1:]:
    try:
        urllib.request.urlopen(url, timeout=5)
        found.append("reached")
    except Exception as error:
        found.append(str(error))
print(found)
"""

ANSWERS: list[object] = []


def problems(seed):
    return [{"word": word, "id": word} for word in RIGHT] * 50


async def score(problem, answer):
    """What the tests of a real task do: a command in the sandbox that the agent has left."""
    ANSWERS.append(answer)
    if answer.exit_code:
        return 0.0
    found = await answer.sandbox.run(["cat", "answer.txt"])
    word = problem["word"]
    return float(found.stdout == f"{word} {RIGHT[word]}")


def kept(problem, answer):
    ANSWERS.append(answer)
    return 0.0
