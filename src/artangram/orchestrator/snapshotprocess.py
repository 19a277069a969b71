"""The process that makes a snapshot from a journal that another process writes.

`python -m artangram.orchestrator.snapshotprocess JOURNAL FILE PARENT`, with the ids that last on
standard input. It leaves the snapshot in FILE, tells a `MadeSnapshot`, and dies with its parent.
"""

import os
import sys
from pathlib import Path

import msgspec

from artangram.forkserver.pdeathsig import die_with
from artangram.observe.journalfile import read_past
from artangram.orchestrator.recovery import Setup, frozen, replayed
from artangram.orchestrator.snapshots import MadeSnapshot


def made(path: Path, file: Path, lasting: set[str]) -> MadeSnapshot:
    """Write the snapshot that the journal at `path` leads to into `file`."""
    past = read_past(path)
    scheduler, ledger = replayed(past, msgspec.json.decode(past.owner, type=Setup))
    live = {f"action:{one.action.id}" for one in ledger.alive()}
    live |= {f"trajectory:{one.id}" for one in ledger.open_trajectories()}
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as output:
        output.write(frozen(scheduler, ledger))
    dead = [id for id in past.kept if id not in live and id not in lasting]
    return MadeSnapshot(seq=past.last_seq, at=past.last_at, dead=dead)


if __name__ == "__main__":
    journal, output, parent = sys.argv[1:]
    die_with(int(parent))
    os.nice(10)
    lasting = msgspec.json.decode(sys.stdin.buffer.read(), type=set[str])
    sys.stdout.buffer.write(msgspec.json.encode(made(Path(journal), Path(output), lasting)))
