"""The command line: `verbs` has the list, one file has each verb."""

import sys

from artangram.cli.extras import how_to_get
from artangram.core.errors import BadInput


def main() -> None:
    """Run a verb. Bad input is one line and exit code 2, never a traceback."""
    try:
        from artangram.cli.verbs import app

        app(*sys.argv[1:2])()
    except BadInput as error:
        _refuse(str(error))
    except ModuleNotFoundError as error:
        how = how_to_get(error.name)
        if how is None:
            raise
        _refuse(f"{error.name}: is not installed; {how}")
    except BrokenPipeError:
        sys.exit(1)


def _refuse(why: str) -> None:
    print(f"error: {why}", file=sys.stderr)
    sys.exit(2)
