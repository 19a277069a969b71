"""`artangram up --model DIR`: a model for agents of any kind, from one command."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from busy_machine import PATIENCE_S
from openai import AsyncOpenAI
from process_support import environ

import artangram
from artangram.models import ModelConfig, Vocabulary
from artangram.models.directory import save_model
from artangram.models.llama import Llama

VERB = [sys.executable, "-c", "from artangram.cli import main; main()"]
TOKEN = "callers-token"
HELLO = [{"role": "user", "content": "how heavy"}]


def a_directory(folder: Path) -> Path:
    words = Vocabulary.of(["how heavy is it"])
    directory = folder / "scales"
    directory.mkdir()
    words.save(directory)
    config = ModelConfig(vocab_size=words.vocab_size, eos_id=words.eos_id)
    save_model(Llama(config, seed=0), directory)
    return directory


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the service says of itself."""
    folder = tmp_path_factory.mktemp("up")
    printed, told = folder / "printed", folder / "serves.json"
    options = ("--model", str(a_directory(folder)), "--model-port", "0", "--engines", "2")
    words = ("up", *options, "--port", "0", "--state-dir", str(folder / "s"), "--json", str(told))
    with printed.open("wb") as out:
        process = subprocess.Popen(
            [*VERB, *words], env=environ(ARTANGRAM_TOKEN=TOKEN), stdout=out, stderr=out
        )
    try:
        give_up_at = time.monotonic() + PATIENCE_S
        while not (told.exists() and told.read_text().endswith("}\n")):
            assert process.poll() is None, printed.read_text()
            assert time.monotonic() < give_up_at, printed.read_text()
            time.sleep(0.05)
        found = json.loads(told.read_text())
        assert f"export ARTANGRAM_MODEL_URL={found['model_url']}" in printed.read_text()
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, printed.read_text()


async def test_every_agent_has_a_session_and_a_key_of_its_own(served: dict[str, str]) -> None:
    url, headers = served["model_url"], {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(url, headers=headers) as http:

        async def opened() -> dict[str, str]:
            async with http.post("/sessions", json={"task": "weigh"}) as answer:
                return await answer.json()

        first, second = await opened(), await opened()
        async with (
            AsyncOpenAI(base_url=f"{url}/v1", api_key=first["api_key"]) as one,
            AsyncAnthropic(base_url=url, api_key=second["api_key"]) as other,
        ):
            completion, message = await asyncio.gather(
                one.chat.completions.create(model="gpt-5", messages=HELLO, max_tokens=4),
                other.messages.create(model="claude", messages=HELLO, max_tokens=3),
            )
        assert completion.usage.completion_tokens <= 4
        assert message.usage.output_tokens <= 3
        for session, usage in (
            (first, completion.usage.completion_tokens),
            (second, message.usage.output_tokens),
        ):
            async with http.delete(f"/sessions/{session['id']}") as answer:
                ((_, said),) = (await answer.json())["lines"]
            assert len(said["token_ids"]) == len(said["logprobs"]) == usage


async def test_the_cluster_is_served_beside_it(served: dict[str, str]) -> None:
    async with artangram.connect(served["url"], token=TOKEN) as client:
        assert (await client.status()).nodes


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    words = ("up", "--model", str(tmp_path), "--port", "0", "--state-dir", str(tmp_path / "s"))
    done = subprocess.run([*VERB, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--model" in done.stderr
    assert "holds no model" in done.stderr
