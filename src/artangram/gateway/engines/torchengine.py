"""The embedded engine in a thread of this process.

Its steps never block the loop, but share Python's lock with it: beside a trainer that computes,
`TorchEngineProcess` is faster.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence

from artangram.core.errors import BadInput
from artangram.gateway.engines.torchclient import TorchClient
from artangram.gateway.engines.torchwire import (
    LeaveEngine,
    News,
    Order,
    TorchEngineSettings,
    WorkerFailed,
)
from artangram.gateway.engines.torchworker import TorchWorker, a_batch


class _ThreadChannel:
    """See `torchworker.ClientChannel`. `on_news` is called on the loop that made this."""

    def __init__(self, on_news: Callable[[Sequence[News]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_news = on_news
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()

    def send(self, order: Order) -> None:
        self._orders.put(order)

    def orders(self, *, wait: bool) -> Sequence[Order]:
        found: list[Order] = [self._orders.get()] if wait else []
        while not self._orders.empty():
            found.append(self._orders.get())
        return found

    def tell(self, news: Sequence[News]) -> None:
        self._loop.call_soon_threadsafe(self._on_news, news)


class TorchEngine(TorchClient):
    """See `protocol.Engine`. Made by `start`, ended by `aclose`."""

    def __init__(self, settings: TorchEngineSettings, *, name: str) -> None:
        super().__init__(name, settings.version)
        self._channel = _ThreadChannel(self._on_news)
        self._thread = threading.Thread(
            target=_work, args=(settings, self._channel), name=f"engine {name}", daemon=True
        )

    @classmethod
    async def start(cls, settings: TorchEngineSettings, *, name: str = "torch") -> "TorchEngine":
        """Load the model and begin. Raises `EngineGone` when it cannot be loaded."""
        engine = cls(settings, name=name)
        engine._thread.start()
        try:
            await engine._is_ready
        except BaseException:
            await engine.aclose()
            raise
        return engine

    async def aclose(self) -> None:
        self.crash("it was closed")
        self._channel.send(LeaveEngine())
        await asyncio.to_thread(self._thread.join)
        self._leave_home()

    def _send(self, order: Order) -> None:
        self._channel.send(order)


def _work(settings: TorchEngineSettings, channel: _ThreadChannel) -> None:
    try:
        TorchWorker(a_batch(settings), channel).run()
    except BadInput as error:
        channel.tell([WorkerFailed(str(error))])
    except Exception as error:
        # Whoever waits has to hear it; the thread's own complaint comes as well.
        channel.tell([WorkerFailed(f"{type(error).__name__}: {error}")])
        raise
