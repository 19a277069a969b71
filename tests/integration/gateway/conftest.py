"""A gateway behind HTTP, with engines the test drives, and real OpenAI clients."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from gateway_support import TOKEN, WORDS, PuppetEngine
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from artangram.gateway import Gateway
from artangram.gateway.http import ServerLimits, application, serving
from artangram.models.tokenizer import Tokenizer


@dataclass
class Door:
    url: str
    gateway: Gateway
    engine: PuppetEngine
    tokenizer: Tokenizer = WORDS
    clients: list[AsyncOpenAI] = field(default_factory=list)

    def client(self, *, session: str | None = None, token: str = TOKEN) -> AsyncOpenAI:
        base = self.url if session is None else f"{self.url}/sessions/{session}"
        plain = DefaultAsyncHttpxClient(verify=False)  # Reading certificates takes long.
        client = AsyncOpenAI(base_url=f"{base}/v1", api_key=token, max_retries=0, http_client=plain)
        self.clients.append(client)
        return client

    async def says(self, text: str, *, pieces: int = 1, ends: bool = True) -> None:
        """The engine answers its newest request with these words."""
        request = await self.engine.next_request()
        tokens = (*self.tokenizer.encode(text), *((self.tokenizer.eos_id,) if ends else ()))
        step = -(-len(tokens) // pieces)
        for start in range(0, len(tokens), step):
            self.engine.say(request, *tokens[start : start + step])
        if ends:
            self.engine.end(request)


@pytest.fixture
def limits() -> ServerLimits:
    return ServerLimits()


@pytest.fixture
def tokenizer() -> Tokenizer:
    return WORDS


@pytest.fixture
async def endpoint(limits: ServerLimits, tokenizer: Tokenizer) -> AsyncIterator[Door]:
    gateway, engine = Gateway(), PuppetEngine("a", version=4)
    gateway.add(engine)
    app = application(gateway, tokenizer=tokenizer, model="tiny", token=TOKEN, limits=limits)
    async with serving(app, stall_s=0.5) as url:
        endpoint = Door(url, gateway, engine, tokenizer)
        yield endpoint
        for client in endpoint.clients:
            await client.close()
        await gateway.aclose()
