"""Devices whose services are vLLM servers that sleep and wake instead of being started.

- Every server runs already, one per place, with `--enable-sleep-mode` and VLLM_SERVER_DEV_MODE=1.
  A restore is `POST /wake_up`, an eviction `POST /sleep?level=1`: weights wait in host memory.
- A service's options: `urls`, the server of the devices 0 to d - 1, d to 2d - 1 and so on;
  `weights_mb`, what it takes awake; `path`, what a payload is posted to. Its loader is `vllm:http`.
- A server that cannot be reached is lost; one that answers 400 has refused the payload.

A real vLLM on cores obeys all of it but frees nothing; on a GPU it was never run.
"""

import asyncio
import contextlib
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput, InfraFailed
from artangram.services.devices import (
    Answer,
    Answered,
    Deployment,
    Failed,
    Measured,
    Replica,
    ReplicaLost,
)
from artangram.services.service import Service

LOADER = "vllm:http"
WAKE_S = 120.0
"""How long a server may take to wake up or fall asleep."""


class VllmOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a service that is a vLLM server."""

    urls: tuple[str, ...]
    weights_mb: int
    path: str = "/v1/chat/completions"


class VllmDevices:
    """See `devices.Kind`."""

    def __init__(self, *, num_devices: int, memory_mb: int) -> None:
        self.num_devices = num_devices
        self.memory_mb = memory_mb
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"<VllmDevices: {self.num_devices} of {self.memory_mb} MB>"

    async def try_out(self, deployment: Deployment) -> Measured:
        """All servers answer and can sleep; they sleep now."""
        options = _options(deployment.service)
        clock = asyncio.get_running_loop().time
        began = clock()
        for url in options.urls:
            try:
                await self._post(f"{url}/wake_up")
                await self._post(f"{url}/sleep?level=1")
            except InfraFailed as error:
                fix = "start it with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"
                raise BadInput("options.urls", str(error), fix) from None
        return Measured(load_s=clock() - began, used_mb=options.weights_mb)

    async def restore(self, deployment: Deployment, *, first: int, degree: int) -> list[Replica]:
        options = _options(deployment.service)
        index = first // degree
        if index >= len(options.urls):
            raise InfraFailed(f"{deployment.service.id} has no server for device {first}")
        url = options.urls[index]
        await self._post(f"{url}/wake_up")
        return [VllmReplica(self, url, path=options.path)]

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _post(self, url: str) -> None:
        """Ask a server to do something; `InfraFailed` if it does not."""
        try:
            async with asyncio.timeout(WAKE_S), self.session.post(url) as response:
                if response.status != 200:
                    raise InfraFailed(f"{url} answered {response.status}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise InfraFailed(f"{url} cannot be reached: {error!r}") from error

    async def sleep(self, url: str) -> None:
        await self._post(f"{url}/sleep?level=1")

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        return self._session


class VllmReplica:
    """See `devices.Replica`."""

    def __init__(self, devices: VllmDevices, url: str, *, path: str) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._devices = devices
        self._url = url
        self._path = path
        self._gone = ""

    async def predict(self, items: list[bytes]) -> list[Answer]:
        """vLLM makes its own batches: all payloads are posted at once."""
        if self._gone:
            raise ReplicaLost(self._gone)
        return list(await asyncio.gather(*(self._answer(item) for item in items)))

    async def end(self) -> None:
        self.lost.cancel()
        if not self._gone:
            self._gone = "it was ended"
            # One that is gone holds nothing; one that will not sleep fails the next that wakes.
            with contextlib.suppress(InfraFailed):
                await self._devices.sleep(self._url)

    async def _answer(self, item: bytes) -> Answer:
        headers = {"content-type": "application/json"}
        try:
            async with self._devices.session.post(
                self._url + self._path, data=item, headers=headers
            ) as response:
                body = await response.read()
        except aiohttp.ClientError as error:
            self._lose(f"{self._url} cannot be reached: {error!r}")
            raise ReplicaLost(self._gone) from error
        if response.status == 200:
            return Answered(body)
        text = body.decode(errors="replace")[:200]
        return Failed(f"{response.status}: {text}", is_infra=response.status >= 500)

    def _lose(self, reason: str) -> None:
        self._gone = reason
        if not self.lost.done():
            self.lost.set_result(reason)


def _options(service: Service) -> VllmOptions:
    if service.loader != LOADER:
        raise BadInput("loader", f"{service.loader} cannot be imported here", f"use {LOADER}")
    try:
        given: dict[str, Any] = service.options
        options = msgspec.convert(given, VllmOptions)
    except msgspec.ValidationError as error:
        fix = f"give {', '.join(VllmOptions.__struct_fields__)}"
        raise BadInput("options", str(error), fix) from None
    if not options.urls:
        raise BadInput("options.urls", "are empty", "name at least one server")
    return options
