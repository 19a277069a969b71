"""What forked processes do in these tests: obey words from their connection."""

import os
import socket
import subprocess
import sys


def obey(connection: socket.socket, number: int) -> int:
    """Answer each word; "exit" ends with code 7."""
    connection.sendall(b"%d\n" % number)
    while word := connection.recv(100).decode():
        match word.split():
            case ["exit"]:
                return 7
            case ["raise"]:
                raise RuntimeError("as the test wishes")
            case ["child"]:
                child = subprocess.Popen(["sleep", "1000"])
                connection.sendall(b"%d\n" % child.pid)
            case ["has", module]:
                connection.sendall(b"yes\n" if module in sys.modules else b"no\n")
            case ["files"]:
                sockets = [os.readlink(f"/proc/self/fd/{fd}") for fd in _files()]
                connection.sendall(b"%d\n" % sum("socket" in name for name in sockets))
    return 0


def _files() -> list[str]:
    with os.scandir("/proc/self/fd") as found:
        names = [entry.name for entry in found]
    return [name for name in names if os.path.lexists(f"/proc/self/fd/{name}")]
