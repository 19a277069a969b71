"""Native calls, reasoning, forced calls and forms of answers, with a real vLLM behind the gateway.

A tiny model with Qwen's chat template learns one reply by heart.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
from families_support import a_family
from gateway_support import TOKEN
from openai import AsyncOpenAI

from artangram.gateway import Gateway
from artangram.gateway.http import application, serving
from artangram.models import HfTokenizer
from artangram.models.tokenizer import ChatInput, Message

from .conftest import CONTEXT, settings, started
from .test_pools import AGREES_WITHIN

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1200)]

TOOL = {
    "type": "function",
    "function": {
        "name": "weigh",
        "description": "Weigh it.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}
THOUGHT = "<think>\nhm\n</think>\n\n"
CALL = '<tool_call>\n{"name": "weigh", "arguments": {"what": "it"}}\n</tool_call>'
ASKED = [{"role": "user", "content": "how heavy is it?"}]
COMPACT = {"backend": "xgrammar", "disable_any_whitespace": True}
"""A model that knows nothing would write white space until it has to stop."""
SCHEMA = {
    "type": "object",
    "properties": {"fits": {"enum": ["yes", "no"]}, "is_sure": {"type": "boolean"}},
    "required": ["fits", "is_sure"],
    "additionalProperties": False,
}


def learned(directory: Path, tokenizer: HfTokenizer) -> None:
    """Save a model that knows both replies: after a thought, and where the call was begun."""
    import torch

    from artangram.models.causal import score
    from artangram.models.config import ModelConfig
    from artangram.models.directory import save_model
    from artangram.models.llama import Llama
    from artangram.models.packed import pack

    prompt = tokenizer.first(ChatInput([Message("user", ASKED[0]["content"])], [TOOL], {}))
    end = tokenizer.eos_id
    begun = tokenizer.opening_of_call([TOOL], name="weigh")
    rest = CALL.partition('"arguments":')[2]
    replies = [(), begun], [THOUGHT + CALL, rest]
    rows = [
        (*prompt, *given, *tokenizer._framed.encode(text, add_special_tokens=False).ids, end)
        for given, text in zip(*replies, strict=True)
    ]
    torch.manual_seed(0)
    model = Llama(ModelConfig(vocab_size=tokenizer.vocab_size, max_context=CONTEXT, eos_id=end))
    packed = pack(rows)
    places = packed.later_tokens()
    starts = [len(prompt), len(rows[0]) + len(prompt) + len(begun)]
    stops = [len(rows[0]), len(rows[0]) + len(rows[1])]
    is_said = sum(((places >= a) & (places < b)) for a, b in zip(starts, stops, strict=True)) > 0
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(120):
        loss = -score(model, packed, at=places[is_said]).logprobs.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.05
    save_model(model, directory)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = a_family(tmp_path_factory.mktemp("qwen3"), "qwen3")
    learned(directory, HfTokenizer(directory))
    names = json.loads((directory / "tokenizer_config.json").read_text())
    config = {**names, "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator:
    log = tmp_path_factory.mktemp("logs") / "native.log"
    compact = ("--structured-outputs-config", json.dumps(COMPACT))
    plan = settings(model, core=0, log=log, structured_output=True, more=compact)
    gateway, tokenizer = Gateway(), HfTokenizer(model)
    async with started({"native": plan}) as (engine,):
        gateway.add(engine)
        app = application(gateway, tokenizer=tokenizer, model="tiny", token=TOKEN)
        async with (
            serving(app) as url,
            AsyncOpenAI(base_url=f"{url}/sessions/s/v1", api_key=TOKEN) as client,
        ):
            yield SimpleNamespace(gateway=gateway, client=client, tokenizer=tokenizer)
        await gateway.aclose()


async def test_a_call_and_its_reasoning_come_from_a_real_server(endpoint, figures):
    how = {"model": "tiny", "messages": ASKED, "tools": [TOOL], "temperature": 0}
    whole = (await endpoint.client.chat.completions.create(**how)).choices[0]
    call = whole.message.tool_calls[0].function
    assert (call.name, json.loads(call.arguments)) == ("weigh", {"what": "it"})
    assert (whole.message.reasoning_content.strip(), whole.finish_reason) == ("hm", "tool_calls")
    thought, calls = "", []
    async for piece in await endpoint.client.chat.completions.create(**how, stream=True):
        thought += getattr(piece.choices[0].delta, "reasoning_content", None) or ""
        calls += piece.choices[0].delta.tool_calls or []
    assert (thought.strip(), [one.function.name for one in calls]) == ("hm", ["weigh"])
    figures["native_call_and_reasoning"] = "passed"


async def test_a_forced_call_is_begun_for_a_real_server_and_the_rest_is_scored_alike(
    endpoint, model
):
    choice = {"type": "function", "function": {"name": "weigh"}}
    before = len(endpoint.gateway.sessions["s"].lines)
    answer = await endpoint.client.chat.completions.create(
        model="tiny", messages=ASKED, tools=[TOOL], tool_choice=choice, temperature=0.7, seed=1
    )
    call = answer.choices[0].message.tool_calls[0].function
    assert (call.name, json.loads(call.arguments)) == ("weigh", {"what": "it"})
    (line,) = endpoint.gateway.sessions["s"].lines[before:]
    given, said = line.segments
    assert given.token_ids[-1] != said.token_ids[0]
    assert scored(model, given.token_ids, said) == pytest.approx(
        list(said.logprobs), abs=AGREES_WITHIN
    )


def scored(model: Path, prompt: tuple[int, ...], said) -> list[float]:
    """What our model says of the tokens."""
    import torch

    from artangram.models.causal import score
    from artangram.models.directory import load_model
    from artangram.models.packed import pack

    packed = pack([(*prompt, *said.token_ids)])
    with torch.no_grad():
        found = score(
            load_model(model), packed, at=packed.later_tokens(), temperature=said.temperature
        )
    return found.logprobs[len(prompt) - 1 :].tolist()


async def test_a_real_server_holds_an_answer_to_its_form(endpoint, figures):
    form = {"type": "json_schema", "json_schema": {"name": "fit", "schema": SCHEMA}}
    answer = await endpoint.client.chat.completions.create(
        model="tiny", messages=ASKED, response_format=form, max_tokens=200
    )
    found = json.loads(answer.choices[0].message.content)
    assert found.keys() == {"fits", "is_sure"}
    assert found["fits"] in ("yes", "no")
    figures["answers_that_follow_a_schema"] = 1
