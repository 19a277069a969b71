"""The init in Python, where no compiler was there: what only init can stop, it stops as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from artangram.sandbox import Command, HostImage, NamespaceProvider, NotCapable
from artangram.sandbox.namespace.compiled import find_compiler
from artangram.sandbox.namespace.sandbox import LocalSandbox

from .test_attacks import TestBombs, TestInit  # noqa: F401 - run again

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def provider(state_dir: Path) -> AsyncIterator[NamespaceProvider]:
    try:
        provider = await NamespaceProvider.open(state_dir=state_dir, compiled=False)
    except NotCapable as problem:
        pytest.skip(str(problem))
    yield provider
    await provider.close()


def loaded(sandbox: LocalSandbox) -> bool:
    """Has init the compiled loop in its memory?"""
    return "/built/init-" in Path(f"/proc/{sandbox.pid}/maps").read_text()


async def test_the_compiled_loop_serves_where_there_is_a_compiler(
    provider: NamespaceProvider, state_dir: Path
) -> None:
    compiled = await NamespaceProvider.open(state_dir=state_dir)
    serving = [await one.create(HostImage()) for one in (compiled, provider)]
    assert [loaded(sandbox) for sandbox in serving] == [bool(find_compiler()), False]
    for sandbox in serving:
        await sandbox.close()
    await compiled.close()


async def test_requests_too_large_for_the_socket_arrive(provider: NamespaceProvider) -> None:
    sandbox = await provider.create(HostImage())
    words = tuple(str(number) for number in range(20_000))
    result = await sandbox.run(Command(argv=("echo", *words)))
    assert result.stdout.split() == [word.encode() for word in words]
    await sandbox.close()
