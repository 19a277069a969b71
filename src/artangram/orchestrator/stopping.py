"""How a service ends when it is told to.

- SIGTERM drains: the service accepts no new work, waits for what runs, then ends. A second signal
  ends it now, a third one without closing anything. It also ends when
  its journal can no longer be written.
"""

import asyncio
import itertools
import os
import signal
from collections.abc import Callable

from artangram.orchestrator.orchestrator import Orchestrator

DRAIN_S = 30.0
"""How long a drain waits before it cancels what is left: what cluster managers grant by default."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


async def until_told_to_stop(
    orchestrator: Orchestrator,
    *,
    drain_s: float = DRAIN_S,
    on_ready: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Return after SIGTERM or SIGINT and a drain; a second signal cuts the drain short.

    A third one, which may come while the caller closes what it opened, ends the process at once, as
    `kill -9` would. `tell` hears what each of them does.

    `on_ready` is called when signals are handled: one may come at once. Raises `Broken` as soon as
    the journal cannot be written: a supervisor may start the service again.
    """
    orchestrator.check_alive()
    told, impatient = asyncio.Event(), asyncio.Event()
    loop, numbers = asyncio.get_running_loop(), itertools.count(1)

    def on_signal() -> None:
        number = next(numbers)
        if number > 2:
            os._exit(INTERRUPTED)
        if number == 2:
            tell("Ending now. A third Ctrl-C does not wait for anything.")
            impatient.set()
        else:
            now = orchestrator.status()
            count = f"{now.running} running and {now.queued} waiting actions"
            tell(f"Draining: {count} have {drain_s:g} s to end; Ctrl-C again ends now.")
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    orchestrator.on_broken = told.set
    on_ready()
    await told.wait()
    draining = asyncio.ensure_future(orchestrator.drain(drain_s))
    cut = asyncio.ensure_future(impatient.wait())
    await asyncio.wait({draining, cut}, return_when=asyncio.FIRST_COMPLETED)
    for task in (draining, cut):
        task.cancel()
    orchestrator.check_alive()
    if not impatient.is_set():
        tell("Drained.")
