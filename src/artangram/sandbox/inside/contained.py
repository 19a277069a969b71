"""First process of a container: reports to its provider, then becomes a sandbox's init.

Runs on an interpreter that the provider lent to the container; of the image, it executes nothing.
"""

from __future__ import annotations

from _socket import AF_UNIX, SOCK_SEQPACKET
from _socket import socket as RawSocket

from artangram.sandbox.inside import channel, linux, seccomp, setup

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from typing import Any

USER_FILES = ("/etc/passwd", "/etc/group")
NAME_SERVERS = "/etc/resolv.conf"


def main(control: str, *, library: str) -> None:
    """`control` is where the provider listens. Its first message is the plan.

    `library` as in `zygote.main`.
    """
    linux.ignore_interrupts()
    sock = RawSocket(AF_UNIX, SOCK_SEQPACKET)
    sock.connect(control)
    plan, _ = channel.receive(sock)
    linux.forbid_capabilities()
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWCGROUP)
    _keep_files(plan)
    plan["score"] = setup.own_score()
    syscalls = linux.Filter(seccomp.program(own_affinity=plan["own_affinity"]))
    compiled = linux.compiled_init(library)
    setup.live(plan, sock.detach(), syscalls=syscalls, compiled=compiled)


def _keep_files(plan: dict[str, Any]) -> None:
    """The image's own users before ours, and the name servers the engine found."""
    for path in USER_FILES:
        known = _read(path)
        if known and not known.endswith(b"\n"):
            known += b"\n"
        plan["files"][path] = known + plan["files"][path]
    if servers := _read(NAME_SERVERS):
        plan["files"][NAME_SERVERS] = servers


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # the image has none
