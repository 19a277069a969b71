"""What every engine promises, promised by a real vLLM."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import FinishReason
from artangram.gateway.engines.vllmprocess import VllmProcess
from conformance import test_engine as suite
from conformance.test_engine import *  # noqa: F403 - the suite, with our engine
from conformance.test_engine import Answer, a_request

# It makes engines of its own; see test_pools.
del test_an_engine_that_was_closed_or_declared_so_is_gone  # noqa: F821

# On two cores vLLM tells of hundreds of tokens at once, or of all.
suite.LONG = 1500
suite.TRIES = 10

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="session")
def weights(models: list[Path]) -> Path:
    return models[1]


@pytest_asyncio.fixture(loop_scope="session")
async def engine(servers: list[VllmProcess]) -> AsyncIterator[VllmProcess]:
    yield servers[0]
    await servers[0].resume()
    assert servers[0].stats().running + servers[0].stats().waiting == 0


async def test_tokens_that_its_model_does_not_know_do_not_reach_it(engine: VllmProcess):
    """vLLM without a tokenizer would try, and die."""
    with pytest.raises(BadInput, match="unknown tokens"):
        await Answer(engine, a_request("bad", prompt=(1, 10**6))).end()
    assert await Answer(engine, a_request("good")).end() is FinishReason.LENGTH
