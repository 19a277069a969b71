"""What every engine promises that reads for others, promised by two real servers and NIXL.

Needs `pip install nixl` beside vLLM; without it these tests are skipped.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from artangram.gateway.engines.protocol import Engine
from conformance import test_handover as suite
from conformance.test_handover import *  # noqa: F403 - the suite, with our engine

from .conftest import settings, skip_without_nixl, started

# It makes engines of its own; see test_pools for servers that die.
del test_a_reader_that_is_gone_hands_nothing_over  # noqa: F821

# A server that was to fetch what another has read, and does not, keeps it from pausing for 30 s.
suite.PATIENCE_S = 240.0

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def weights(models: list[Path]) -> list[Path]:
    return models[:2]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    weights: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[Engine]]:
    skip_without_nixl()
    logs = tmp_path_factory.mktemp("logs")
    plans = {
        f"half-{n}": settings(
            weights[0], core=n, log=logs / f"{n}.log", kv_connector="NixlConnector"
        )
        for n in range(2)
    }
    async with started(plans) as engines:
        yield engines
