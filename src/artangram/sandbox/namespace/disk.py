"""How much the files of a live sandbox may take: the size of the one tmpfs that holds them."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from artangram.core.errors import BadInput
from artangram.sandbox.inside import linux
from artangram.sandbox.namespace.results import InitReply
from artangram.sandbox.namespace.traits import Traits
from artangram.sandbox.protocol import Command


@asynccontextmanager
async def disk_for(
    command: Command, traits: Traits, *, changes: Callable[[], Awaitable[InitReply]]
) -> AsyncIterator[None]:
    """Meanwhile all files together take no more than `command` may have.

    Raises `BadInput` if they take more already. `changes` opens a directory at the top of the
    tmpfs. Without control groups we may not resize it, and each process is limited instead.
    """
    if not command.disk_mb or traits.groups is None:
        yield
        return
    if traits.limits.storage == "disk":
        problem = "files on disk have one limit for the whole trajectory"
        raise BadInput("disk_mb", problem, "leave it out")
    traits.limits.admit(command)
    reply = await changes()
    try:
        _resize(reply.descriptor, command.disk_mb)
        try:
            yield
        finally:
            _resize(reply.descriptor, traits.limits.disk_mb)
    finally:
        reply.close()


def _resize(directory: int, size_mb: int) -> None:
    root = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        linux.reconfigure(root, b"size", b"%dm" % size_mb)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        problem = f"{size_mb} is less than what its files take"
        raise BadInput("disk_mb", problem, "give more, or remove files first") from None
    finally:
        os.close(root)
