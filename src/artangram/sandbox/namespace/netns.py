"""Sockets in the network of a sandbox, made by this process: it needs root.

A socket belongs to the network namespace of the thread that made it, in whatever thread it is used
later. So a thread of its own enters the sandbox's namespace, makes one, and ends.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading
from collections.abc import Callable

from artangram.sandbox.inside.linux import CLONE_NEWNET

_libc = ctypes.CDLL(None, use_errno=True)


def listening_in(pid: int, port: int) -> socket.socket:
    """A socket that listens on the loopback of the network of a process.

    Raises `OSError` if that is our own network: the process is not the one that was meant.
    """

    def make() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
            sock.listen(64)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return sock

    with open(f"/proc/{pid}/ns/net", "rb") as theirs, open("/proc/self/ns/net", "rb") as ours:
        if os.path.sameopenfile(theirs.fileno(), ours.fileno()):
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        return _entered(theirs.fileno(), make)


def _entered(namespace: int, make: Callable[[], socket.socket]) -> socket.socket:
    made: list[socket.socket] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            if _libc.setns(namespace, CLONE_NEWNET):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
            made.append(make())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            failed.append(error)

    thread = threading.Thread(target=work, name="netns")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]
