"""The trace of a running service: what its journal and archive hold, for the simulator."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator

from artangram.core.errors import BadInput
from artangram.observe.journal import Journal
from artangram.observe.journalfile import FileJournal

PIECE_BYTES = 256 * 1024


async def trace_bytes(journal: Journal) -> AsyncGenerator[bytes]:
    """A `.jsonl.gz`, in pieces. Raises `BadInput` before the first one if no trace can be had."""
    if not isinstance(journal, FileJournal):
        raise BadInput("trace", "the service keeps no journal on disk", "give it a state directory")
    words = ["-m", "artangram.observe.traceprocess", str(journal.path.parent), "recorded"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        while piece := await process.stdout.read(PIECE_BYTES):
            yield piece
        said = (await process.stderr.read()).decode(errors="replace").strip()
        if await process.wait() != 0:
            raise BadInput("trace", said or "it could not be read", "try again later")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
