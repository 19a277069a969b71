"""The command line: `verbs` has the list, one file has each verb."""

import os
import sys
from contextlib import suppress
from shutil import get_terminal_size
from typing import NoReturn

from artangram.cli.extras import what_to_install
from artangram.cli.standard import OutputLost, harmless, watched
from artangram.cli.summaries import overview
from artangram.core.errors import BadInput

UNHEARD = 1
"""Exit code when the answer could not be written."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main() -> None:
    """Run a verb. Bad input is one line and exit code 2, never a traceback."""
    words = sys.argv[1:]
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - to the very end
    if sys.stdout is None:
        _refuse("standard output: is closed; redirect it to a file, a pipe or /dev/null")
    try:
        with watched():
            if words in ([], ["--help"]):
                print(overview(get_terminal_size().columns), end="")
                sys.exit(0 if words else 2)
            from artangram.cli.verbs import perform

            code = perform(words)
    except BadInput as error:
        _refuse(str(error))
    except ModuleNotFoundError as error:
        what = what_to_install(error.name, verb=next(iter(words), None))
        if what is None:
            raise
        _refuse(what)
    except OutputLost as loss:
        if loss.why:
            _say(f"standard output: {loss.why}; redirect it to a place with room")
        sys.exit(UNHEARD)
    except KeyboardInterrupt:  # Before the verb began; later, typer does the same.
        sys.exit(INTERRUPTED)
    sys.exit(code)


def _refuse(why: str) -> NoReturn:
    _say(why)
    sys.exit(2)


def _say(why: str) -> None:
    with suppress(OSError):  # Standard error is closed; the exit code remains.
        print(f"error: {harmless(' '.join(why.split()))}", file=sys.stderr)
