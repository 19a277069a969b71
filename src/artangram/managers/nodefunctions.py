"""Calls of functions on another node: asked of its agent, which has the workers.

- Each verb may be asked again: a call that began is not begun twice, and its answer is kept until
  the orchestrator lets go of it. A link that breaks costs nothing.
- Functions are pure, so a call that an orchestrator left behind does no harm: it ends by itself,
  and the oldest answers are forgotten first.
- The module of a function has to be installed on the node.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from types import NoneType
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from artangram.aio import Background
from artangram.core.errors import CallFailed, InfraFailed
from artangram.functions.function import FunctionSpec
from artangram.functions.local import LocalFunctions
from artangram.managers import wire
from artangram.sandbox.errors import SandboxError

MOST_KEPT = 1024
"""Calls that an agent remembers: far more than may run at once."""

T = TypeVar("T")


class FunctionCalls:
    """The calls on this node, by the names that the orchestrator gave them."""

    def __init__(self, slots: int) -> None:
        self._runner = LocalFunctions(ceiling=slots) if slots else None
        self._calls: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()
        self._begun: dict[str, asyncio.Event] = {}

    def __repr__(self) -> str:
        return f"<FunctionCalls: {len(self._calls)} known>"

    async def begin(self, name: str, spec: FunctionSpec, body: bytes, *, hedged: bool) -> None:
        """Return when it has begun, or could not be begun."""
        if self._runner is None:
            raise InfraFailed("this node has no function slots")
        if name not in self._calls:
            begun = self._begun[name] = asyncio.Event()
            call = self._runner.call(spec, body, hedged=hedged, on_begun=begun.set)
            task = self._calls[name] = asyncio.create_task(call)
            task.add_done_callback(lambda _: begun.set())
            while len(self._calls) > MOST_KEPT:
                self.end(next(iter(self._calls)))
        await self._begun[name].wait()

    async def answer(self, name: str) -> bytes:
        """What a call that was begun answered, however often that is asked."""
        task = self._calls.get(name)
        if task is None:
            raise InfraFailed("this node does not know the call any more")
        await asyncio.wait({task})
        if task.cancelled():
            raise InfraFailed("the call was ended")
        return task.result()

    def end(self, name: str) -> None:
        """Forget a call, and end it if it still runs."""
        task = self._calls.pop(name, None)
        self._begun.pop(name, None)
        if task is not None and not task.cancel() and not task.cancelled():
            task.exception()  # The orchestrator has it, or does not want it.

    async def aclose(self) -> None:
        tasks = list(self._calls.values())
        for name in list(self._calls):
            self.end(name)
        if tasks:
            await asyncio.wait(tasks)
        if self._runner is not None:
            await self._runner.aclose()


class AskForCall(Protocol):
    """See `remote.RemoteAgent`."""

    def __call__(
        self, record: wire.OfCalls, answer: type[T], *, stream: str = ""
    ) -> Coroutine[Any, Any, T]: ...


class RemoteFunctions:
    """See `functions.function.FunctionRunner`; of an agent in a process of its own."""

    def __init__(self, ask: AskForCall) -> None:
        self._ask = ask
        self._background = Background(lambda error: None)

    async def call(
        self,
        spec: FunctionSpec,
        body: bytes,
        *,
        hedged: bool = False,
        on_begun: Callable[[], None] = lambda: None,
    ) -> bytes:
        name = uuid4().hex
        try:
            begin = wire.BeginCall(name, spec, body, hedged)
            await self._ask(begin, NoneType, stream=f"call {name}")
            on_begun()
            return await self._ask(wire.AwaitCall(name), bytes, stream=f"call {name}")
        except SandboxError as error:
            raise InfraFailed(str(error)) from error
        finally:
            self._background.start(self._end(name))

    async def _end(self, name: str) -> None:
        try:
            await self._ask(wire.EndCall(name), NoneType)
        except (SandboxError, CallFailed, InfraFailed):
            return  # The node is gone, and the call with it.

    async def aclose(self) -> None:
        await self._background.close()
