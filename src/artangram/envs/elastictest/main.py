"""The command line: a few options of its own, all others are pytest's.

Exit codes are pytest's: 0 all passed, 1 some failed, 2 interrupted or not collected, 3 internal
error or cut off, 4 wrong use, 5 no tests.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from . import cores
from .guard import UNFINISHED, guarded

WRONG_USE = 4
"""pytest's own code for arguments that make no sense."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USE, f"error: {message}; see --elastic-help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a suite and return its exit code."""
    ours, theirs = _parser().parse_known_args(sys.argv[1:] if argv is None else list(argv))
    # As `python -m pytest` has it, also when this is started as one file.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    return guarded(partial(_run, ours, theirs))


def _run(ours: argparse.Namespace, theirs: list[str]) -> int:
    # Not before the guard's fork: two processes would share and then copy all of it.
    try:
        import pytest
    except ModuleNotFoundError as missing:
        print(f"{missing}: {sys.executable} needs pytest where it runs", file=sys.stderr)
        return UNFINISHED

    from .controller import Options
    from .plugin import Elastic

    began_at = time.monotonic()
    options = Options(
        workers=ours.units or cores.degree(os.environ), test_timeout_s=ours.test_timeout
    )
    plugin = Elastic(options, keep_files=ours.keep == "file")
    try:
        code = int(pytest.main(theirs, plugins=[plugin]))
    except Exception:  # noqa: BLE001 - of pytest's last clean-up; Python's own code for it is 1
        traceback.print_exc()
        code = 1
    seconds = time.monotonic() - began_at
    print(plugin.results.line(seconds))
    if ours.report:
        plugin.results.write(ours.report, exit_code=code, seconds=seconds)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="elastictest",
        description="Run pytest on all the cores this process may use, however they change.",
        epilog="All other arguments go to pytest.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("--elastic-help", action="help", help="show this and exit")
    parser.add_argument("--report", metavar="FILE", type=_place, help="write the results as JSON")
    parser.add_argument(
        "--test-timeout", metavar="S", type=_seconds, default=0.0, help="fail longer tests"
    )
    parser.add_argument(
        "--keep",
        choices=("fixtures", "file"),
        default="fixtures",
        help="what stays on one worker: tests that share fixtures, or whole files",
    )
    parser.add_argument(
        "--units",
        metavar="N",
        type=_positive,
        help=f"most workers at once (default: {cores.UNITS}, else the cores of the machine)",
    )
    return parser


def _place(text: str) -> str:
    """Of a file that is written when everything has run: what cannot be one is said before."""
    folder = os.path.dirname(text) or "."
    if os.path.isdir(text) or not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise argparse.ArgumentTypeError(f"{text!r} is no file that can be written here")
    return text


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
