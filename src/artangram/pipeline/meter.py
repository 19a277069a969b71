"""What a run gets from its cluster, seen from the run: how long actions took, what they kept busy.

The same for a cluster of its own and for one behind HTTP, and of this run alone where many share
one.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from artangram.core.ids import Resource
from artangram.core.scheduling.action import ActionRecord
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    PoolSpec,
    QuotaSpec,
)
from artangram.managers.call import ApiCall, Call, FunctionCall, ServiceCall
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.calling import CallRequest
from artangram.orchestrator.records import ActionResult
from artangram.orchestrator.transport import Transport
from artangram.sandbox.protocol import Output

CPU, DEVICES, FUNCTIONS = Resource("cpu"), Resource("devices"), Resource("functions")


class Acts(Struct, frozen=True, kw_only=True):
    """Mean times of the actions of one kind: ACT = wait + overhead + run."""

    count: int
    act_s: float
    wait_s: float
    run_s: float


class ActionUsage(Struct, frozen=True, kw_only=True):
    """What was seen in some stretch of time."""

    kinds: dict[str, Acts] = {}
    busy: dict[str, float] = {}
    """Mean cores, devices and function slots at work; of an API, calls per second. Calls that
    share a service at the same time share its devices."""
    capacity: dict[str, float] = {}
    """What there is of each, where that is known."""

    def share(self, resource: str) -> float | None:
        """How much of it is in use; `None` if its capacity is not known."""
        most = self.capacity.get(resource)
        return self.busy.get(resource, 0.0) / most if most else None


class Meter:
    """Adds up what ended; `take` empties it."""

    def __init__(self, now: Callable[[], float], capacity: Mapping[str, float]) -> None:
        self._now = now
        self._capacity = dict(capacity)
        self._since = now()
        self._ended: dict[str, list[ActionResult]] = {}
        self._amounts: dict[str, float] = {}
        self._services: dict[str, list[ActionRecord]] = {}

    def __repr__(self) -> str:
        return f"<Meter: {sum(map(len, self._ended.values()))} actions>"

    def add(self, result: ActionResult, call: Call | None = None) -> None:
        """An action ended: `call`, or a command on cores."""
        self._ended.setdefault(result.record.kind, []).append(result)
        if isinstance(call, ServiceCall):
            self._services.setdefault(call.service, []).append(result.record)
        else:
            resource, amount = _amount(result, call)
            self._amounts[resource] = self._amounts.get(resource, 0.0) + amount

    def take(self) -> ActionUsage:
        """What ended since the last time this was asked."""
        now = self._now()
        took_s = max(now - self._since, 1e-9)
        if self._services:
            self._amounts[DEVICES] = sum(map(_device_s, self._services.values()))
        usage = ActionUsage(
            kinds={kind: _acts(found) for kind, found in sorted(self._ended.items())},
            busy={name: amount / took_s for name, amount in sorted(self._amounts.items())},
            capacity=self._capacity,
        )
        self._since, self._ended, self._amounts, self._services = now, {}, {}, {}
        return usage


class Metered:
    """A `transport.Transport` that tells a meter what ended; all else goes straight through."""

    def __init__(self, backend: Transport, meter: Meter) -> None:
        self._backend = backend
        self._meter = meter

    def __repr__(self) -> str:
        return repr(self._backend)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._backend, verb)

    async def run(self, request: RunRequest) -> ActionResult:
        result = await self._backend.run(request)
        self._meter.add(result)
        return result

    async def stream(self, request: RunRequest) -> AsyncGenerator[Output | ActionResult, None]:
        async with aclosing(self._backend.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ActionResult):
                    self._meter.add(piece)
                yield piece

    async def call(self, request: CallRequest) -> ActionResult:
        result = await self._backend.call(request)
        self._meter.add(result, request.call)
        return result


def capacity_of(cluster: ClusterSpec) -> dict[str, float]:
    """How much of everything a cluster has, in the units of `ActionUsage.busy`."""
    found: dict[str, float] = {}
    for name, spec in cluster.pools.items():
        resource, amount = _most(name, spec)
        if amount is not None:
            found[resource] = found.get(resource, 0.0) + amount
    return found


def _most(name: Resource, spec: PoolSpec) -> tuple[str, float | None]:
    match spec:
        case CpuSpec():
            return CPU, spec.nodes * spec.cores
        case GpuSpec():
            return DEVICES, spec.nodes * spec.devices
        case FunctionsSpec():
            return FUNCTIONS, spec.ceiling
        case QuotaSpec():
            return name, None if spec.limit is None else spec.limit / spec.window_s


def _amount(result: ActionResult, call: ApiCall | FunctionCall | None) -> tuple[str, float]:
    """Which resource an action kept busy, and for how many unit-seconds; of an API, once."""
    match call:
        case None:
            return CPU, result.core_s
        case ApiCall(api=api):
            return api, float(result.record.started_at is not None)
        case FunctionCall():
            return FUNCTIONS, result.overhead_s + result.run_s


def _device_s(calls: list[ActionRecord]) -> float:
    """How long the calls of one service held devices; several at once are one batch."""
    total, until = 0.0, 0.0
    for call in sorted(calls, key=lambda c: c.started_at or 0.0):
        if call.started_at is not None and call.ended_at > until:
            total += call.units * (call.ended_at - max(until, call.started_at))
            until = call.ended_at
    return total


def _acts(results: list[ActionResult]) -> Acts:
    count = len(results)
    return Acts(
        count=count,
        act_s=sum(r.act_s for r in results) / count,
        wait_s=sum(r.wait_s for r in results) / count,
        run_s=sum(r.run_s for r in results) / count,
    )
