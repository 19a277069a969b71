"""A worker: calls one function at a time for its owner, until the owner closes its socket.

It is a fork of the zygote and dies with it. It reports what a function raises as text, and
survives it.
"""

import math
import os
import random
import resource
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socket import socket as Socket

from artangram.core.errors import CallFailed, InfraFailed
from artangram.functions.encoding import packed, unpacked
from artangram.functions.function import Function, resolved
from artangram.functions.inside.records import WorkerRequest, worker_terms
from artangram.link import BlockingLink, IncomingAsk, LinkEnded

_PAGE = os.sysconf("SC_PAGE_SIZE")
_DATA_FIELD = 5


def live(sock: Socket, number: int) -> int:
    """Serve calls from `sock`, as worker `number`; returns 0 when the owner is gone.

    A `forkserver.zygote.Target`.
    """
    os.environ["ARTANGRAM_WORKER"] = str(number)
    _reseed()
    with (
        suppress(LinkEnded),
        BlockingLink.accepted(sock, worker_terms, patience_s=math.inf) as link,
    ):
        while True:
            asked = link.receive()
            assert isinstance(asked, IncomingAsk), "an owner only asks"
            _answer(asked)
    return 0


def _answer(asked: IncomingAsk[WorkerRequest]) -> None:
    request = asked.record
    try:
        found = resolved(request.target)
        code = found.code if isinstance(found, Function) else found
    except Exception:  # noqa: BLE001 - a module may raise anything when it is imported
        asked.refuse(InfraFailed(traceback.format_exc()))
        return
    try:
        with _limited(request.memory_mb):
            args, kwargs = unpacked(request.body)
            answer = packed(code(*args, **kwargs))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the caller gets it
        asked.refuse(CallFailed(_told(error)))
    else:
        asked.answer(answer)


def _told(error: BaseException) -> str:
    """The traceback without our own frame, which is of no interest to the function's author."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    return "".join(traceback.format_exception(error)).rstrip()


@contextmanager
def _limited(memory_mb: int | None) -> Iterator[None]:
    """Let this process take `memory_mb` beside what it has; `None` for no limit of ours."""
    if memory_mb is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/statm", "rb") as statm:
        soft = int(statm.read().split()[_DATA_FIELD]) * _PAGE + (memory_mb << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _reseed() -> None:
    """Forks of one process would draw the same numbers."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
