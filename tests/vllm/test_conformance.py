"""What every engine promises, promised by a real vLLM."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from artangram.gateway.engines.vllmprocess import VllmProcess
from conformance import test_engine as suite
from conformance.test_engine import *  # noqa: F403 - the suite, with our engine

# It makes engines of its own; see test_pools.
del test_an_engine_that_was_closed_or_declared_so_is_gone  # noqa: F821

# On a busy machine vLLM tells of hundreds of tokens at once.
suite.LONG = 1500

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="session")
def weights(models: list[Path]) -> Path:
    return models[1]


@pytest_asyncio.fixture(loop_scope="session")
async def engine(servers: list[VllmProcess]) -> AsyncIterator[VllmProcess]:
    yield servers[0]
    await servers[0].resume()
    assert servers[0].stats().running + servers[0].stats().waiting == 0
