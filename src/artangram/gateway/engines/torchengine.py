"""The embedded engine in a thread of this process.

Its steps never block the loop, but share Python's lock with it: beside a trainer that computes,
`TorchEngineProcess` is faster.
"""

import asyncio
import socket
import threading

from artangram.gateway.engines.torchclient import TorchClient
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.gateway.engines.torchworker import serve


class TorchEngine(TorchClient):
    """See `protocol.Engine`. Made by `start`, ended by `aclose`."""

    def __init__(self, settings: TorchEngineSettings, *, name: str) -> None:
        super().__init__(name, settings.version)
        self._worker, theirs = socket.socketpair()
        self._thread = threading.Thread(
            target=serve, args=(theirs,), name=f"engine {name}", daemon=True
        )

    @classmethod
    async def start(cls, settings: TorchEngineSettings, *, name: str = "torch") -> "TorchEngine":
        """Load the model and begin. Raises `EngineGone` when it cannot be loaded."""
        engine = cls(settings, name=name)
        engine._thread.start()
        try:
            await engine._open(engine._worker, settings)
        except BaseException:
            await engine.aclose()
            raise
        return engine

    async def aclose(self) -> None:
        self.crash("it was closed")
        if self._link is None:
            self._worker.close()
        else:
            await self._link.aclose()
        await asyncio.to_thread(self._thread.join)
        self._leave_home()
