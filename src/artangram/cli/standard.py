"""Standard output: when it cannot be written, one exception says so; names cannot command it.

A full disk and a closed pipe are `OSError`s, and verbs attribute those to the files that they write
themselves. So standard output raises an exception of its own.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROLS}


def harmless(text: str) -> str:
    """`text` with every character escaped that a terminal would obey: others chose the names."""
    return text.translate(_SHOWN)


class OutputLost(Exception):
    """Standard output cannot be written. `why` is empty if its reader closed the pipe."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error}")
        is_unread = isinstance(error, BrokenPipeError)
        self.why = "" if is_unread else (error.strerror or str(error)).lower()


class _Raw(FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputLost(error) from error


@contextmanager
def watched() -> Iterator[None]:
    """What is printed inside has arrived at the end. Raises `OutputLost`."""
    if sys.stdout is not sys.__stdout__ or not isinstance(sys.stdout, TextIOWrapper):
        yield  # It was redirected within this process.
        return
    with redirect_stdout(_as_it_was(sys.stdout)):
        try:
            try:
                yield
            finally:
                sys.stdout.flush()
        except (OutputLost, BaseExceptionGroup) as error:
            loss = _loss_in(error)
            if loss is None:
                raise
            _forget_the_rest()
            raise loss from None


def _loss_in(error: BaseException) -> OutputLost | None:
    """The loss of output in an error or a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_loss_in, error.exceptions)), None)
    return error if isinstance(error, OutputLost) else None


def _as_it_was(stream: TextIOWrapper) -> TextIOWrapper:
    raw = _Raw(stream.fileno(), "wb", closefd=False)
    return TextIOWrapper(
        raw if stream.write_through else BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _forget_the_rest() -> None:
    """Otherwise the interpreter tries to write it again at exit, and prints a warning."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
