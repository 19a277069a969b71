"""Messages with descriptors over a SEQPACKET socket, the same on both ends.

- Between provider and zygote, one message is one marshalled value: marshal needs no import and
  takes bytes as they are. What goes into and comes out of a sandbox are fixed layouts.
- A message too large for the socket travels in a sealed memory file of its own.
"""

from __future__ import annotations

import array
import marshal
import os
from _socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOL_SOCKET
from _socket import socket as RawSocket

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

INLINE_BYTES = 64 << 10
MAX_DESCRIPTORS = 8
_INLINE, _IN_FILE = b"i", b"f"
_ANCILLARY_BYTES = CMSG_SPACE(4 * MAX_DESCRIPTORS)


def send(sock: RawSocket, value: Any, fds: Sequence[int] = ()) -> None:
    """Send one value and its descriptors; never blocks on a non-blocking socket."""
    send_message(sock, marshal.dumps(value), fds)


def receive(sock: RawSocket) -> tuple[Any, list[int]]:
    """One value and its descriptors; `EOFError` when the other end is gone."""
    data, fds = receive_message(sock)
    return marshal.loads(data), fds


def send_message(sock: RawSocket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send bytes of any length and their descriptors."""
    if len(data) < INLINE_BYTES:
        if fds:
            send_bytes(sock, _INLINE + data, fds)
        else:
            sock.send(_INLINE + data)
        return
    holder = memory_file(data)
    try:
        send_bytes(sock, _IN_FILE, (holder, *fds))
    finally:
        os.close(holder)


def receive_message(sock: RawSocket) -> tuple[bytes, list[int]]:
    """What `send_message` sent; `EOFError` when the other end is gone."""
    data, fds = receive_bytes(sock)
    if data[:1] == _IN_FILE:
        holder = fds.pop(0)
        try:
            data = _INLINE + os.pread(holder, os.fstat(holder).st_size, 0)
        finally:
            os.close(holder)
    return data[1:], fds


def send_bytes(sock: RawSocket, data: bytes, fds: Sequence[int] = ()) -> None:
    if fds:
        rights = array.array("i", fds)
        sock.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, rights)])
    else:
        sock.send(data)


def receive_bytes(sock: RawSocket) -> tuple[bytes, list[int]]:
    data, ancillary, _, _ = sock.recvmsg(INLINE_BYTES + 16, _ANCILLARY_BYTES, MSG_CMSG_CLOEXEC)
    if data and not ancillary:
        return data, []
    fds = array.array("i")
    for level, kind, rights in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            fds.frombytes(rights[: len(rights) - len(rights) % fds.itemsize])
    if not data:
        for fd in fds:
            os.close(fd)
        raise EOFError("the other end is gone")
    return data, list(fds)


def memory_file(data: bytes) -> int:
    """A descriptor of a file in memory that holds `data`, at offset 0."""
    fd = os.memfd_create("artangram", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
