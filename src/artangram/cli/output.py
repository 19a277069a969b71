"""What verbs print: tables for people, JSON for programs, and progress.

With `--json -` the JSON has standard output for itself and everything else goes to standard error.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import EACCES
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from artangram.cli.standard import harmless
from artangram.core.errors import BadInput
from artangram.observe.badfile import AnyPath

JsonFile = Annotated[
    str | None,
    typer.Option(help="Write the result as JSON to this file; - is standard output."),
]

_WIDEST = 1000
"""Characters; longer than any line of our tables."""


class Printer:
    """Where one verb prints."""

    def __init__(self, json: str | None) -> None:
        if json not in (None, "-"):
            claim_file(Path(str(json)))
        self._json = json
        self.console = plain_console(stderr=json == "-")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """The first column is a name; the others are numbers."""
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*map(harmless, row))
        self.console.print(Text(harmless(title), style="italic"), soft_wrap=True)
        with self._wide_enough_for(table):
            self.console.print(table)

    @contextmanager
    def _wide_enough_for(self, table: Table) -> Iterator[None]:
        """Lines that a narrow terminal wraps are better than figures that were cut off."""
        before, options = self.console.width, self.console.options.update(max_width=_WIDEST)
        self.console.width = max(before, self.console.measure(table, options=options).maximum)
        try:
            yield
        finally:
            self.console.width = before

    def json(self, value: object) -> None:
        """Write `value` where `--json` says, if it says anything."""
        if self._json is None:
            return
        data = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
        if self._json == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            write_file(Path(self._json), data)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Spinners on standard error, if that is a terminal."""
        console = plain_console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        ) as p:
            yield p


def tell_ignored(console: Console, path: AnyPath, fields: Iterable[str], *, verb: str) -> None:
    """One line about the fields of a cluster file that `verb` does not use, if it has any."""
    if ignored := ", ".join(fields):
        console.print(f"{path}: `{verb}` ignores {ignored}", style="dim", soft_wrap=True)


class PlainConsole(Console):
    """Shows names as they are: brackets and colons in them mean nothing, controls are escaped."""

    def print(self, *objects: Any, **options: Any) -> None:
        plain = [_lines(one) if isinstance(one, str) else one for one in objects]
        super().print(*plain, **options)


def _lines(text: str) -> str:
    return "\n".join(map(harmless, text.split("\n")))


def plain_console(*, stderr: bool = False) -> Console:
    """Where people read."""
    return PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False)


def write_file(path: Path, data: bytes) -> None:
    """Write a file, making its folder; a place that cannot be written is bad input."""
    make_folder(path)
    with writing(path):
        path.write_bytes(data)


def claim_file(path: Path) -> None:
    """A file that will be written after long work: what cannot be one is said at once."""
    make_folder(path)
    with writing(path):
        if path.is_dir():
            raise BadInput(str(path), "is a directory", "name a file you may write")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))


def claim_picture(path: Path) -> None:
    """The same for a picture, whose kind is its ending."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise BadInput("plot", f"{path} is neither .svg nor .png", "give it one of these endings")
    claim_file(path)


def keep_apart(files: Mapping[str, Path | str | None]) -> None:
    """What one command reads and writes, by what it is: no file may be two of them."""
    seen: dict[str, str] = {}
    for what, path in files.items():
        if path is None or path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
            continue  # A device keeps nothing.
        other = seen.setdefault(os.path.realpath(path), what)
        if other != what:
            raise BadInput(what, f"{path} is {other}", "give it a file of its own")


def make_folder(path: Path) -> None:
    """The folder that `path` will be in."""
    if path.name in ("", "-"):  # Only --json knows standard output by that name.
        raise BadInput(str(path), "is not a file", "name a file you may write")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(path: Path, *, what: str = "file") -> Iterator[None]:
    """A place that cannot be written is the caller's mistake."""
    try:
        yield
    except OSError as error:
        problem = error.strerror or str(error)
        raise BadInput(str(path), problem, f"name a {what} you may write") from None
