"""The servers that `artangram bench gateway` measures, as a program: `engine` and `gateway`.

- `engine TOKEN_S`: a scripted engine behind HTTP; each token takes that long.
- `gateway URL TOKEN`: a gateway before the engine at that address.

Each prints its address, and ends when its standard input does: it never outlives its owner.
"""

import asyncio
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from artangram.gateway.engines.protocol import EngineRequest
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.gateway.engines.vllm import VllmEngine
from artangram.gateway.engines.vllmdouble import application as double
from artangram.gateway.gateway import Gateway
from artangram.gateway.http import application, serving
from artangram.models.vocabulary import Vocabulary

MODEL = "scripted"
WORDS = "the quick brown fox jumps over the lazy dog"
VOCABULARY = Vocabulary.of([WORDS])
REPLY = (*VOCABULARY.encode(WORDS), VOCABULARY.eos_id)


def _script(request: EngineRequest) -> tuple[int, ...]:
    return REPLY


async def _serve_engine(token_s: float) -> None:
    scripted = ScriptedEngine(_script, pace=ScriptedPace(token_s=token_s), max_context=1 << 16)
    async with serving(double(scripted, model=MODEL, reply=WORDS)) as url:
        await _until_stdin_ends(url)


async def _serve_gateway(engine_url: str, token: str) -> None:
    vllm = await VllmEngine.connect(engine_url)
    gateway = Gateway()
    gateway.add(vllm)
    app = application(gateway, tokenizer=VOCABULARY, model=MODEL, token=token)
    async with serving(app) as url:
        await _until_stdin_ends(url)
    await vllm.aclose()


async def _until_stdin_ends(url: str) -> None:
    print(url, flush=True)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.read()


def main() -> None:
    """What such a process runs."""
    kind, *rest = sys.argv[1:]
    served = _serve_engine(float(rest[0])) if kind == "engine" else _serve_gateway(*rest)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(served)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop where it is installed; LiteLLM's proxy does the same."""
    try:
        uvloop: Any = import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


if __name__ == "__main__":
    main()
