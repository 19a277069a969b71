"""A process that takes the same named snapshot again and again, until it is killed."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from artangram.sandbox import Command, HostImage, NamespaceProvider, SnapshotTerms

NUM_FILES = 200


async def main(state_dir: Path) -> None:
    provider = await NamespaceProvider.open(state_dir=state_dir, keep_for="the test")
    sandbox = await provider.create(HostImage())
    assert (await sandbox.run(Command(argv=("mkdir", "all")))).ok
    for number in itertools.count():
        write = f"for i in $(seq {NUM_FILES}); do echo {number} > all/$i; done"
        assert (await sandbox.run(Command(argv=("sh", "-c", write)))).ok
        print(number, flush=True)
        await sandbox.snapshot(SnapshotTerms(name="deps"))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
