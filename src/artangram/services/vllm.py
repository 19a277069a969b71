"""Model services that are vLLM servers, or other HTTP engines: each answers by itself.

Two ways to be evicted; a service's options say which. Its loader is `vllm:http` for both.

- `urls`: servers that run already, one per place, and sleep. A restore is `POST /wake_up`, an
  eviction `POST /sleep?level=1`: weights wait in host memory. They are the servers of the devices 0
  to d - 1, d to 2d - 1 and so on; start them with `--enable-sleep-mode` and
  VLLM_SERVER_DEV_MODE=1.
- `argv`: a command that is started for a restore and ended for an eviction. That takes as long as
  the engine takes to start, which is measured, so the scheduler weighs it; but it frees everything,
  and works where an engine cannot sleep. `{port}`, `{units}` (how many devices) and `{devices}`
  (which, as in `0,1`) are filled in, in `environ`, too.

Both have one degree: a server is built for as many devices as it has. `weights_mb` is what it takes
of them, all its caches included; that cannot be measured from here. A server that cannot be reached
is lost; one that answers 400 has refused the payload.

A real vLLM on cores does all of it, but frees nothing asleep; on a GPU it was never run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
from msgspec import UNSET, Struct

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import NodeId, Resource
from artangram.services.devices import (
    Answer,
    Answered,
    Deployment,
    Measured,
    PredictFailed,
    ReplicaLost,
    ServiceReplica,
)
from artangram.services.gpus import Gpu, seeing, usable_gpus
from artangram.services.host import GPU, ServiceHost
from artangram.services.service import Service
from artangram.services.started import ServerCommand, StartedServer, started

LOADER = "vllm:http"
WAKE_S = 120.0
"""How long a server may take to wake up or fall asleep."""
LAST_WORDS_S = 2.0
"""Between a connection that breaks and the end of the process behind it."""


class VllmOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a service that is an HTTP engine; see the module."""

    weights_mb: int
    path: str = "/v1/chat/completions"
    """What a payload is posted to."""
    urls: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    environ: dict[str, str] = {}
    ready: str = "/health"
    """Where a started server answers 200 when it can be asked."""
    starts_within_s: float = 600.0

    def command(self) -> ServerCommand:
        return ServerCommand(
            argv=self.argv,
            environ=self.environ,
            ready=self.ready,
            starts_within_s=self.starts_within_s,
        )


class VllmDevices:
    """See `devices.Kind`. With `gpus`, a started server sees only those of its devices."""

    def __init__(self, *, num_devices: int, memory_mb: int, gpus: Sequence[Gpu] = ()) -> None:
        self.num_devices = num_devices
        self.memory_mb = memory_mb
        self._gpus = gpus
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"<VllmDevices: {self.num_devices} of {self.memory_mb} MB>"

    async def try_out(self, deployment: Deployment, *, first: int) -> Measured:
        """Restore and evict on all places that have a server, or at `first` for a command."""
        options, degree = self._options(deployment.service)
        places = [number * degree for number in range(len(options.urls))] or [first]
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            for place in places:
                replica = await self._restored(options, first=place, degree=degree)
                restore_s = (clock() - began) / len(places)
                await _try_example(replica, deployment.service)
        except InfraFailed as error:
            raise BadInput(*_what_to_do(options, error)) from None
        return Measured(load_s=restore_s, used_mb=options.weights_mb, restore_s=restore_s)

    async def restore(
        self, deployment: Deployment, *, first: int, degree: int
    ) -> list[ServiceReplica]:
        options, _ = self._options(deployment.service)
        return [await self._restored(options, first=first, degree=degree)]

    async def _restored(self, options: VllmOptions, *, first: int, degree: int) -> "VllmReplica":
        if options.urls:
            url = options.urls[first // degree]
            await self._post(f"{url}/wake_up")
            return VllmReplica(self.session, url + options.path, lambda: self._sleep(url))
        names = {"units": degree, "devices": ",".join(map(str, range(first, first + degree)))}
        command = options.command()
        if self._gpus:
            seen = seeing(self._gpus[first : first + degree])
            command = msgspec.structs.replace(command, environ=command.environ | seen)
        server = await started(command, names=names)
        return VllmReplica(self.session, server.url + options.path, server.end, server=server)

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

    async def _sleep(self, url: str) -> None:
        await self._post(f"{url}/sleep?level=1")

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        return self._session

    def _options(self, service: Service) -> tuple[VllmOptions, int]:
        """The options and the degree of a service; `BadInput` for what cannot work here."""
        options = _parsed(service)
        if len(service.degrees) != 1:
            fix = "name the one that its servers were built for"
            raise BadInput("degrees", f"{list(service.degrees)} are several", fix)
        [degree] = service.degrees
        places = self.num_devices // degree
        if options.urls and len(options.urls) != places:
            problem = f"are {len(options.urls)}, and {places} places have {degree} devices each"
            raise BadInput("options.urls", problem, "name a server for every place")
        return options, degree


class VllmReplica:
    """See `devices.ServiceReplica`. `free` gives the devices of its server back."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: str,
        free: Callable[[], Awaitable[None]],
        *,
        server: StartedServer | None = None,
    ) -> None:
        """It is lost when `server`, if it is one of ours, ends by itself."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._session = session
        self._address = address
        self.free = free
        self._gone = ""
        self._server = server
        if server is not None:
            server.ended.add_done_callback(self._on_ended)

    async def predict(self, items: list[bytes]) -> list[Answer]:
        """vLLM makes its own batches: all payloads are posted at once."""
        if self._gone:
            raise ReplicaLost(self._gone)
        return list(await asyncio.gather(*(self._answer(item) for item in items)))

    async def end(self) -> None:
        if not self.lost.done():
            self.lost.cancel()
            self._gone = "it was ended"
        # One that is gone holds nothing; one that will not sleep fails the next that wakes.
        with suppress(InfraFailed):
            await self.free()

    async def _answer(self, item: bytes) -> Answer:
        headers = {"content-type": "application/json"}
        try:
            async with self._session.post(self._address, data=item, headers=headers) as response:
                body = await response.read()
        except aiohttp.ClientError as error:
            if self._server is not None:  # It may be about to say why.
                await asyncio.wait({self._server.ended}, timeout=LAST_WORDS_S)
            self._lose(f"{self._address} cannot be reached: {error!r}")
            raise ReplicaLost(self._gone) from error
        if response.status == 200:
            return Answered(body)
        text = body.decode(errors="replace")[:200]
        return PredictFailed(f"{response.status}: {text}", is_infra=response.status >= 500)

    def _on_ended(self, ended: "asyncio.Task[str]") -> None:
        if not ended.cancelled():
            self._lose(ended.result())

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            self._gone = reason
            self.lost.set_result(reason)


async def _try_example(replica: VllmReplica, service: Service) -> None:
    """Ask it the example, if there is one, and evict it; what goes wrong is raised."""
    try:
        if service.example is not UNSET:
            [answer] = await replica.predict([msgspec.json.encode(service.example)])
            if isinstance(answer, PredictFailed):
                fix = "correct the path or the example"
                raise BadInput("example", f"was not answered: {answer.problem}", fix)
    finally:
        await replica.free()


def _parsed(service: Service) -> VllmOptions:
    if service.loader != LOADER:
        raise BadInput("loader", f"{service.loader} cannot be imported here", f"use {LOADER}")
    try:
        given: dict[str, Any] = service.options
        options = msgspec.convert(given, VllmOptions)
    except msgspec.ValidationError as error:
        fix = f"give {', '.join(VllmOptions.__struct_fields__)}"
        raise BadInput("options", str(error), fix) from None
    if bool(options.urls) == bool(options.argv):
        fix = "name servers that sleep in `urls`, or the command of one in `argv`"
        raise BadInput("options", "need one of urls and argv", fix)
    return options


def _what_to_do(options: VllmOptions, error: InfraFailed) -> tuple[str, str, str]:
    if options.argv:
        fix = "run the command by itself; it has to listen on {port} and answer 200 at `ready`"
        return "options.argv", str(error), fix
    fix = "start it with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"
    return "options.urls", str(error), fix


async def vllm_host(
    node: NodeId, *, count: int, memory_mb: int, resource: Resource = GPU
) -> ServiceHost:
    """A host of HTTP engines on `count` devices: GPUs where there are some, else only books."""
    gpus = (await asyncio.to_thread(usable_gpus))[:count]
    if count < 1 or (gpus and len(gpus) < count):
        fix = f"give 1 to {len(gpus)}" if gpus else "give at least 1"
        raise BadInput("devices.count", f"{count} of {len(gpus)} GPUs cannot be used", fix)
    return ServiceHost(
        node, VllmDevices(num_devices=count, memory_mb=memory_mb, gpus=gpus), resource=resource
    )
