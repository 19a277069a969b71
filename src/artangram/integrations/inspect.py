"""Inspect AI's sandbox: `sandbox="artangram"` runs each sample in a trajectory of its own.

- Inspect finds it by its entry point. ARTANGRAM_URL names the service; without it, a cluster is
  made in this process for as long as a task runs.
- What Inspect's contract names is raised as it says; a failure of infrastructure is
  `SandboxUnavailableError`, so that no sample is scored for it.
- For inspect-ai 0.3.285; `pip install 'artangram[inspect]'`.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from inspect_ai.util._sandbox.environment import SandboxUnavailableError
from pydantic import BaseModel

import artangram
from artangram.core.errors import InfraFailed
from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.orchestrator.records import ActionResult
from artangram.sandbox.protocol import MAX_READ_BYTES, TarImage

PIPED_BYTES = 1 << 20
"""Longer input goes through a pipe in pieces."""


class ArtangramSandboxConfig(BaseModel):
    """`SandboxEnvironmentSpec("artangram", ArtangramSandboxConfig(...))`."""

    model_config = {"frozen": True}
    memory_mb: int = 1024
    disk_mb: int | None = None
    network: bool = False
    image: str = ""
    """A `docker save` archive or OCI layout; empty means the programs of the node."""
    job: str = "inspect"


class SharedClients:
    """One client per event loop, open for as long as a task of Inspect's uses it."""

    def __init__(self) -> None:
        self._open: dict[asyncio.AbstractEventLoop, tuple[AsyncExitStack, Client, int]] = {}
        self._opening = asyncio.Lock()

    async def take(self) -> Client:
        loop = asyncio.get_running_loop()
        async with self._opening:
            if loop not in self._open:
                stack = AsyncExitStack()
                url = os.environ.get("ARTANGRAM_URL", "")
                token = os.environ.get("ARTANGRAM_TOKEN")
                opened = artangram.connect(url, token=token) if url else artangram.local()
                self._open[loop] = stack, await stack.enter_async_context(opened), 0
            stack, client, count = self._open[loop]
            self._open[loop] = stack, client, count + 1
        return client

    async def give_back(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._opening:
            stack, client, count = self._open[loop]
            self._open[loop] = stack, client, count - 1
            if count == 1:
                del self._open[loop]
                await stack.aclose()


_clients = SharedClients()


@sandboxenv(name="artangram")
class TrajectorySandboxEnvironment(SandboxEnvironment):
    """A trajectory's sandbox with Inspect's verbs."""

    def __init__(self, trajectory: TrajectoryHandle) -> None:
        super().__init__()
        self.trajectory = trajectory

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return ArtangramSandboxConfig(**config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        if isinstance(config, str):
            config = ArtangramSandboxConfig(image=config)
        wanted = config if isinstance(config, ArtangramSandboxConfig) else ArtangramSandboxConfig()
        client = await _clients.take()
        opened = client.trajectory(
            job=wanted.job,
            task=task_name,
            memory_mb=wanted.memory_mb,
            disk_mb=wanted.disk_mb,
            network=wanted.network,
            source=TarImage(path=wanted.image) if wanted.image else None,
        )
        try:
            return {"default": cls(await opened.open())}
        except BaseException:
            await _clients.give_back()
            raise

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: BaseModel | str | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(cls).trajectory.close()
            await _clients.give_back()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109 - Inspect's word.
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None:
            problem = f"cannot run a command as {user!r}: a sandbox has one user"
            raise SandboxUserUnsupportedError(f"{problem}; leave `user` out")
        data = input.encode() if isinstance(input, str) else input or b""
        try:
            result = await self._run(cmd, data, cwd or "", env or {}, timeout)
        except (InfraFailed, KeyError) as error:
            raise SandboxUnavailableError(str(error)) from error
        return _as_inspect(result, timeout)

    async def _run(
        self, cmd: list[str], data: bytes, cwd: str, env: dict[str, str], timeout_s: int | None
    ) -> ActionResult:
        limit = 2 * SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        if len(data) <= PIPED_BYTES:
            return await self.trajectory.run(
                cmd,
                stdin=data,
                cwd=cwd,
                environ=env,
                timeout_s=timeout_s,
                output_bytes=limit,
                keep=True,
            )
        process = await self.trajectory.start(
            cmd, cwd=cwd, environ=env, timeout_s=timeout_s, output_bytes=limit
        )
        try:
            await process.write(data)
            await process.close_stdin()
        except OSError:
            pass  # It does not read its input, which is its own affair.
        return await process.wait()

    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        await self.trajectory.write(file, data)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.trajectory.read(file, max_bytes=min(limit, MAX_READ_BYTES))
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            raise
        except OSError as error:
            told = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
            raise OutputLimitExceededError(limit_str=told, truncated_output=None) from error
        return data.decode() if text else data


def _as_inspect(result: ActionResult, timeout: int | None) -> ExecResult[str]:
    if result.outcome is Outcome.TIMED_OUT:
        raise TimeoutError(f"the command ran longer than {timeout} s")
    command = result.command
    if command is None or result.outcome is Outcome.INFRA_FAILED:
        raise SandboxUnavailableError(f"the command was lost: {result.reason}")
    if command.start_error and command.exit_code == 126:
        raise PermissionError(command.start_error)
    limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    if command.truncated_bytes or max(len(command.stdout), len(command.stderr)) > limit:
        told = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
        raise OutputLimitExceededError(limit_str=told, truncated_output=result.stdout[:limit])
    return ExecResult(
        success=command.exit_code == 0,
        returncode=command.exit_code,
        stdout=result.stdout,
        stderr=result.stderr or command.start_error,
    )
