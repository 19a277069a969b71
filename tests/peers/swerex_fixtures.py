"""The fixtures that SWE-ReX's `tests/test_execution.py` asks for; its archive has none.

`test_swerex.py` copies this file beside it as `conftest.py`.
"""

from functools import partial
from uuid import uuid4

import pytest_asyncio
from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest
from swerex.runtime.remote import RemoteRuntime

from artangram.integrations.swerexwire import swerex_pages
from artangram.orchestrator.local import running
from artangram.orchestrator.server import serving

TOKEN = "a-token-of-the-tests"
_Action = partial(BashAction, timeout=20)
_Command = partial(Command, timeout=20)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def address():
    async with (
        running(cores=2, memory_mb=6000) as (orchestrator, _),
        serving(orchestrator, token=TOKEN, pages=swerex_pages) as url,
    ):
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def remote_runtime(address):
    runtime = RemoteRuntime(host=f"{address}/swerex/{uuid4().hex}", auth_token=TOKEN, timeout=5)
    yield runtime
    await runtime.close()


@pytest_asyncio.fixture(loop_scope="session")
async def runtime_with_default_session(remote_runtime):
    await remote_runtime.create_session(CreateBashSessionRequest())
    return remote_runtime
