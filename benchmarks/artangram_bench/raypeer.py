"""Ray's side of `bench ray`: a driver on a host of its Ray cluster, told what to run by lines.

- Tasks are queued at once and awaited together; calls of async actors are awaited, as many at a
  time as our callers are.
- The coding trace has the sandboxes that we use. An actor without CPUs on the worker keeps them,
  and every action is a task that asks Ray for its CPUs, then runs there on as many cores, which
  are free because Ray counts them.
"""

import asyncio
import socket
import sys
from time import perf_counter
from typing import Any

import msgspec
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from artangram.sandbox import open_provider
from artangram.sandbox.protocol import Command, HostImage, Sandbox
from artangram_bench.raypeerwire import (
    IN_FLIGHT,
    HostRequest,
    PeerAction,
    PeerAnswer,
    PeerRequest,
    TraceRequest,
)

SOCKET = "/tmp/ray/artangram-bench.sock"
"""On the worker; every host has a `/tmp/ray` of its own."""


def noop(_: int) -> None:
    """What Ray runs."""


class Called:
    """An actor whose method does nothing."""

    async def noop(self) -> None:
        return


class SandboxHost:
    """Keeps the sandboxes of a worker, and gives each command cores of its own.

    It listens on a socket: a task that waited for a call of Ray would give its CPUs back meanwhile.
    """

    def __init__(self, cores: list[int]) -> None:
        self._free = cores
        self._server: Any = None
        self._provider: Any = None
        self._sandboxes: dict[int, Sandbox] = {}

    async def listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._answer, SOCKET, limit=1 << 24)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = msgspec.json.decode(await reader.readline(), type=HostRequest)
        is_good = await self._run(asked.number, asked.image, asked.argv, asked.cpus)
        writer.write(b"1" if is_good else b"0")
        writer.close()

    async def _run(self, number: int, image: HostImage, argv: list[str], cpus: int) -> bool:
        if self._provider is None:
            self._provider = await open_provider()
        if number not in self._sandboxes:
            self._sandboxes[number] = await self._provider.create(image)
        cores = tuple(self._free.pop() for _ in range(cpus))
        try:
            command = Command(
                argv=tuple(argv),
                cores=cores,
                timeout_s=600.0,
                environ={"ARTANGRAM_UNITS": str(cpus)},
            )
            return bool((await self._sandboxes[number].run(command)).exit_code == 0)
        finally:
            self._free.extend(cores)

    async def close_all(self) -> None:
        for sandbox in self._sandboxes.values():
            await sandbox.close()
        self._sandboxes.clear()


def act(asked: HostRequest) -> bool:
    """A task: it holds its CPUs while the command runs."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(SOCKET)
        link.sendall(msgspec.json.encode(asked) + b"\n")
        return link.recv(1) == b"1"


class RayPeer:
    """See the module."""

    def __init__(self) -> None:
        ray.init("auto", logging_level="ERROR", log_to_driver=False)
        rows = [row for row in ray.nodes() if row["Alive"] and row["Resources"].get("CPU")]
        self._noop = ray.remote(noop)
        on = [NodeAffinitySchedulingStrategy(row["NodeID"], soft=False) for row in rows]
        actor = ray.remote(Called)
        self._called = [actor.options(num_cpus=0, scheduling_strategy=one).remote() for one in on]
        cores = list(range(int(rows[0]["Resources"]["CPU"])))
        host = ray.remote(SandboxHost).options(
            num_cpus=0, scheduling_strategy=on[0], max_concurrency=1000
        )
        self._host = host.remote(cores)
        ray.get(self._host.listen.remote())
        self._act, self._on = ray.remote(act), on[0]

    async def perform(self, request: PeerRequest) -> PeerAnswer:
        began_at = perf_counter()
        if isinstance(request, TraceRequest):
            return await self._trace(request)
        if request.as_calls:
            await self._calls(request.count)
        else:
            await asyncio.to_thread(self._tasks, request.count)
        return PeerAnswer(took_s=perf_counter() - began_at)

    def _tasks(self, count: int) -> None:
        ray.get([self._noop.remote(number) for number in range(count)])

    async def _calls(self, count: int) -> None:
        async def caller(number: int) -> None:
            actor = self._called[number % len(self._called)]
            for _ in range(count // IN_FLIGHT):
                await actor.noop.remote()

        await asyncio.gather(*map(caller, range(IN_FLIGHT)))

    async def _trace(self, request: TraceRequest) -> PeerAnswer:
        acts: list[float] = []
        failed = 0

        async def live(number: int, actions: list[PeerAction]) -> None:
            nonlocal failed
            for action in actions:
                began_at = perf_counter()
                task = self._act.options(num_cpus=action.cpus, scheduling_strategy=self._on)
                asked = HostRequest(
                    number=number, image=request.image, argv=action.argv, cpus=action.cpus
                )
                failed += not await task.remote(asked)
                acts.append(perf_counter() - began_at)
                await asyncio.sleep(action.think_s)

        began_at = perf_counter()
        await asyncio.gather(*(live(n, one) for n, one in enumerate(request.trajectories)))
        took_s = perf_counter() - began_at
        await self._host.close_all.remote()
        return PeerAnswer(took_s=took_s, acts_s=acts, failed=failed)


async def serve() -> None:
    peer = RayPeer()
    for text in sys.stdin:
        answer = await peer.perform(msgspec.json.decode(text, type=PeerRequest))
        print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
