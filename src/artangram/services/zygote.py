"""The process that replicas are born from: it has imported what takes long, and forks.

`python -m artangram.services.zygote FD DIRECTORY MODULE...` obeys the orders on the connection FD.

- It has one thread, always: a fork copies only the thread that forks.
- When its host is gone it kills its replicas, removes the directory of host copies and ends.
"""

import contextlib
import gc
import os
import selectors
import shutil
import signal
import socket
import sys
import traceback
from importlib import import_module

import msgspec

from artangram.services import replica, wire


class ServiceZygote:
    """Forks replicas and tells when they have ended."""

    def __init__(self, channel: wire.BlockingChannel) -> None:
        self._channel = channel
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel.connection, selectors.EVENT_READ)
        self._pids: dict[int, int] = {}
        self._orders = msgspec.msgpack.Decoder(wire.Order)

    def run(self) -> None:
        """Obey until the host is gone."""
        self._channel.send(wire.ZygoteReady())
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._reap(key.fd, key.data)
                elif (order := self._channel.receive(self._orders)) is not None:
                    self._obey(order)
                else:
                    return

    def end_all(self) -> None:
        """Kill what is left, and wait until it is gone."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            os.waitpid(pid, 0)

    def _obey(self, order: wire.Order) -> None:
        match order:
            case wire.Fork():
                self._fork(order)
            case wire.End(number):
                if number in self._pids:
                    os.kill(self._pids[number], signal.SIGKILL)
            case wire.Preload(module):
                preload(module)

    def _fork(self, fork: wire.Fork) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be_replica(fork, parent)
        self._pids[fork.number] = pid
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, fork.number)

    def _reap(self, pidfd: int, number: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(self._pids.pop(number), 0)
        self._channel.send(wire.ReplicaEnded(number, os.waitstatus_to_exitcode(status)))


def _be_replica(fork: wire.Fork, parent: int) -> None:
    """Never returns: what is above on the stack belongs to the zygote."""
    code = 1
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the zygote's connection and descriptors
        code = replica.live(fork, parent=parent)
    except BaseException:  # noqa: BLE001 - whatever it was, this process must not go on as a zygote
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def preload(module: str) -> None:
    """Import `module` for all forks. One that cannot be imported is the business of its users."""
    with contextlib.suppress(Exception):
        import_module(module)
    # Collected now and never again: a collection in a fork would copy every page it looks at.
    gc.collect()
    gc.freeze()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A host that is interrupted ends us itself.
    descriptor, directory, *modules = sys.argv[1:]
    os.dup2(2, 1)  # What a model prints is for people; it must not end in somebody's data.
    for module in modules:
        preload(module)
    zygote = ServiceZygote(wire.BlockingChannel(socket.socket(fileno=int(descriptor))))
    try:
        zygote.run()
    except ConnectionError:
        pass  # The host is gone.
    finally:
        zygote.end_all()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
