"""The process of an embedded engine: `python -m artangram.gateway.engines.torchchild FD`.

The socket at that descriptor is its only tie: settings come first, then orders. When the other end
is gone, however that came, it ends.
"""

import select
import socket
import sys
from collections import deque
from collections.abc import Sequence

import msgspec
import torch

from artangram.core.errors import BadInput
from artangram.gateway.engines.torchwire import (
    FrameReader,
    LeaveEngine,
    News,
    Order,
    TorchEngineSettings,
    WorkerFailed,
    frame,
)
from artangram.gateway.engines.torchworker import TorchWorker, a_batch

_READ_BYTES = 2**18


class SocketChannel:
    """See `torchworker.ClientChannel`."""

    def __init__(self, owner: socket.socket) -> None:
        self._owner = owner
        self._frames = FrameReader()
        self._bodies: deque[bytes] = deque()
        self._decode = msgspec.msgpack.Decoder(list[Order]).decode

    def settings(self) -> TorchEngineSettings:
        """What the owner sends first."""
        while not self._bodies:
            if not self._read():
                raise SystemExit("the owner left before it said what to serve")
        (found,) = msgspec.msgpack.decode(self._bodies.popleft(), type=list[TorchEngineSettings])
        return found

    def orders(self, *, wait: bool) -> Sequence[Order]:
        while self._may_read(wait=wait and not self._bodies):
            if not self._read():
                return [LeaveEngine()]
        found: list[Order] = []
        while self._bodies:
            found += self._decode(self._bodies.popleft())
        return found

    def tell(self, news: Sequence[News]) -> None:
        try:
            self._owner.sendall(frame(news))
        except ConnectionError:
            return  # The next look for orders finds that the owner is gone.

    def _may_read(self, *, wait: bool) -> bool:
        readable, _, _ = select.select([self._owner], [], [], None if wait else 0)
        return bool(readable)

    def _read(self) -> bool:
        """False at the end of the connection."""
        try:
            data = self._owner.recv(_READ_BYTES)
        except ConnectionError:
            return False
        self._bodies.extend(self._frames.fed(data))
        return bool(data)


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as owner:
        channel = SocketChannel(owner)
        settings = channel.settings()
        torch.set_num_threads(settings.num_threads)
        try:
            worker = TorchWorker(a_batch(settings), channel)
        except BadInput as error:
            channel.tell([WorkerFailed(str(error))])
            return
        worker.run()


if __name__ == "__main__":
    main()
