"""A process that writes the trace of a state directory, compressed, to its standard output.

A process of its own: a large journal takes a while, and a service that is asked for its trace goes
on deciding meanwhile.
"""

import sys
import tempfile
from pathlib import Path
from shutil import copyfileobj

from artangram.core.errors import BadInput
from artangram.observe.journal import JournalError
from artangram.observe.journaltrace import trace_of
from artangram.observe.recording import recorded
from artangram.observe.trace import write_trace


def main() -> int:
    state_dir, name = Path(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "trace.jsonl.gz")
        try:
            write_trace(written, trace_of(recorded(state_dir), name=name))
        except (BadInput, JournalError) as error:
            print(error, file=sys.stderr)
            return 1
        with written.open("rb") as file:
            copyfileobj(file, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
