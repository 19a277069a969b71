"""The command line: `verbs` has the list, one file has each verb."""

import sys

from artangram.cli.extras import what_to_install
from artangram.core.errors import BadInput

INTERRUPTED = 130
"""What shells say of a program that ended by Ctrl-C."""


def main() -> None:
    """Run a verb. Bad input is one line and exit code 2, never a traceback."""
    words = sys.argv[1:]
    try:
        from artangram.cli.verbs import perform

        sys.exit(perform(words))
    except BadInput as error:
        _refuse(str(error))
    except ModuleNotFoundError as error:
        what = what_to_install(error.name, verb=next(iter(words), None))
        if what is None:
            raise
        _refuse(what)
    except BrokenPipeError:
        sys.exit(1)
    except KeyboardInterrupt:  # Before the verb began; later typer ends it so.
        sys.exit(INTERRUPTED)


def _refuse(why: str) -> None:
    print(f"error: {' '.join(why.split())}", file=sys.stderr)
    sys.exit(2)
