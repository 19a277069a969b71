"""A real provider for the whole package, and a way to run hostile Python in a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from artangram.sandbox import (
    Command,
    CommandResult,
    HostImage,
    IsolationLevel,
    Limits,
    NamespaceProvider,
    NotCapable,
)
from artangram.sandbox.namespace.sandbox import LocalSandbox

from .small_root import fill

PROGRAMS = ("dash", "cat", "ls")
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
SMALL = Limits(memory_mb=96, disk_mb=32, inodes=2000, processes=48)
HELPERS = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *args):
    '''0 or positive when the kernel allowed it, otherwise the name of the error.'''
    ctypes.set_errno(0)
    result = libc.syscall(number, *args)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]
def attempt(function, *args):
    try:
        return function(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
"""

Attack = Callable[..., Awaitable[CommandResult]]


@pytest.fixture(scope="package")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all providers of these tests: images are prepared once, and gone afterwards."""
    return tmp_path_factory.mktemp("state")


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def provider(state_dir: Path) -> AsyncIterator[NamespaceProvider]:
    try:
        provider = await NamespaceProvider.open(state_dir=state_dir)
    except NotCapable as problem:
        pytest.skip(str(problem))
    await provider.create(HostImage())
    yield provider
    groups = groups_of(provider)
    assert bool(groups) == (provider.capabilities.level >= IsolationLevel.CGROUPS)
    await provider.close()
    assert not [group for group in groups if group.exists()]


@pytest_asyncio.fixture(loop_scope="package")
async def sandbox(provider: NamespaceProvider) -> AsyncIterator[LocalSandbox]:
    sandbox = await provider.create(HostImage(), limits=SMALL)
    yield sandbox
    await sandbox.close()


@pytest.fixture
def late_s() -> float:
    """How long after its deadline a command may have ended at the latest."""
    return 0.05


@pytest.fixture
def attack(sandbox: LocalSandbox) -> Attack:
    """Run hostile Python in the sandbox; it may use `call`, `attempt` and `libc`."""

    async def run(code: str, **more: object) -> CommandResult:
        argv = (*PYTHON, HELPERS + code)
        return await sandbox.run(Command(argv=argv, **{"timeout_s": 60.0} | more))  # type: ignore[arg-type]

    return run


def groups_of(provider: NamespaceProvider) -> list[Path]:
    """Every control group directory of a provider."""
    listed = provider.run_path / "groups"
    return [Path(line) for line in listed.read_text().splitlines()] if listed.exists() else []


@pytest.fixture(scope="package")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few programs and the libraries they need."""
    root = tmp_path_factory.mktemp("rootfs")
    fill(root, PROGRAMS)
    (root / "etc/release").write_text("tiny 1")
    (root / "srv").mkdir()
    (root / "srv/old").write_text("old")
    return root
