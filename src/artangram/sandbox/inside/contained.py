"""First process of a container: reports to its provider, then becomes a sandbox's init.

Runs on an interpreter that the provider lent to the container; of the image, it executes nothing.
"""

from __future__ import annotations

import os
from _socket import AF_UNIX, SOCK_SEQPACKET
from _socket import socket as RawSocket

from artangram.sandbox.inside import birth, channel, linux, seccomp

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from typing import Any

USER_FILES = ("/etc/passwd", "/etc/group")


def main(control: str) -> None:
    """`control` is where the provider listens. Its first message is the plan."""
    linux.ignore_interrupts()
    sock = RawSocket(AF_UNIX, SOCK_SEQPACKET)
    sock.connect(control)
    plan, _ = channel.receive(sock)
    linux.forbid_capabilities()
    linux.unshare(linux.CLONE_NEWNS)
    _add_users(plan)
    syscalls = linux.Filter(seccomp.program(own_affinity=plan["own_affinity"]))
    birth.live(plan, sock.detach(), syscalls=syscalls)


def _add_users(plan: dict[str, Any]) -> None:
    """The image's own users, and ours."""
    for path in USER_FILES:
        try:
            with open(path, "rb") as file:
                known = file.read()
        except OSError:
            known = b""  # an image without users
        if known and not known.endswith(b"\n"):
            known += b"\n"
        plan["files"][path] = known + plan["files"][path]
    # Only what the engine left there: what programs see is the copy in the new root.
    os.umask(0o022)
