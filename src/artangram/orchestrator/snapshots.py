"""Takes snapshots of the journal without holding the event loop.

- A small state is pickled at once, in a few milliseconds. A large one is made by another process:
  it reads the journal, replays it as a restart would, and pickles what that leads to. This process
  goes on meanwhile; what it writes after the last entry that the other one read stays in the
  journal.
- One snapshot is taken at a time. If the other process fails, the snapshot is taken here.
"""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.core.scheduling.scheduler import Scheduler
from artangram.observe.journal import Journal
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.recovery import frozen

RESULTS_KEPT_S = 86_400.0
"""How long an ended action answers to its key."""

MOST_HERE = 200
"""Actions and trajectories that are pickled at once: each takes about 50 microseconds."""
MOST_BYTES_HERE = 1 << 18
"""And how large the last snapshot was at most: what was learned is in it, too."""


class MadeSnapshot(Struct, frozen=True, kw_only=True):
    """What the other process says of a snapshot; the snapshot itself is in a file."""

    seq: int
    at: float
    dead: list[str]
    """Ids of what the journal keeps and nothing needs any more, as of the entry `seq`."""


class Snapshots:
    """Of one scheduler and ledger, into their journal."""

    def __init__(self, journal: Journal, scheduler: Scheduler, ledger: Ledger) -> None:
        self._journal = journal
        self._scheduler = scheduler
        self._ledger = ledger
        self.is_taking = False
        """Is another process making one?"""
        self.size_bytes = 0
        """Of the last one."""
        self._is_closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._num_made = 0
        if journal.path is not None:
            for left in journal.path.parent.glob(f"{journal.path.name}.snapshot-*"):
                left.unlink()  # The process that wanted it was killed.

    def take(self, now: float, *, lasting: set[str], owner: bytes | None = None) -> None:
        """Replace the entries by the state they led to; for another owner, if one is named.

        `lasting` are the ids of what the journal keeps as long as it lives.
        """
        if not self._journal.is_lasting:
            return
        num_alive = len(self._ledger.actions) + len(self._ledger.trajectories)
        is_small = num_alive <= MOST_HERE and self.size_bytes <= MOST_BYTES_HERE
        if owner is not None or is_small or self._journal.path is None:
            self._take_here(now, lasting, owner)
        elif not self.is_taking:
            self.is_taking = True
            words = (self._journal.path, sorted(lasting), asyncio.get_running_loop())
            thread = threading.Thread(target=self._make, args=(*words, now, lasting), daemon=True)
            thread.start()

    def close(self) -> None:
        """Take no more; one that is being made is given up."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()

    def _take_here(self, now: float, lasting: set[str], owner: bytes | None = None) -> None:
        live = [f"action:{one.action.id}" for one in self._ledger.alive()]
        live += [f"trajectory:{one.id}" for one in self._ledger.open_trajectories()]
        body = frozen(self._scheduler, self._ledger)
        self.size_bytes = len(body)
        after = now - RESULTS_KEPT_S
        self._journal.compact(body, live=[*live, *lasting], settled_after=after, owner=owner)

    def _make(
        self,
        path: Path,
        kept: list[str],
        loop: asyncio.AbstractEventLoop,
        now: float,
        lasting: set[str],
    ) -> None:
        """In a thread: have it made, and come back to the loop."""
        self._num_made += 1  # The journal may not have read the file of the last one yet.
        file = path.with_name(f"{path.name}.snapshot-{self._num_made}")
        words = (str(path), str(file), str(os.getpid()))
        argv = [sys.executable, "-m", "artangram.orchestrator.snapshotprocess", *words]
        told: bytes | None = None
        try:
            pipe = subprocess.PIPE
            with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as self._process:
                told, _ = self._process.communicate(msgspec.json.encode(kept))
            if self._process.returncode != 0:
                told = None
        finally:
            self._process = None
            if self._is_closed or loop.is_closed():
                file.unlink(missing_ok=True)
            else:
                loop.call_soon_threadsafe(self._on_made, file, told, now, lasting)

    def _on_made(self, file: Path, told: bytes | None, now: float, lasting: set[str]) -> None:
        self.is_taking = False
        if self._is_closed:
            file.unlink(missing_ok=True)
        elif told is None:
            self._take_here(now, lasting)
        else:
            made = msgspec.json.decode(told, type=MadeSnapshot)
            self.size_bytes = file.stat().st_size
            dead = [id for id in made.dead if id not in lasting]
            after = now - RESULTS_KEPT_S
            self._journal.adopt(file, seq=made.seq, at=made.at, dead=dead, settled_after=after)
