"""A command's output over HTTP: one line of JSON per piece as it comes, the result last."""

from collections.abc import AsyncGenerator, AsyncIterable

import msgspec
from msgspec import Struct

from artangram.orchestrator.errors import KNOWN, ErrorRecord, problem_of, raised
from artangram.orchestrator.records import ActionResult
from artangram.sandbox.process import ProcessBegan
from artangram.sandbox.protocol import Output


class Piece(Struct, frozen=True, kw_only=True):
    """One line."""

    output: Output | None = None
    began: ProcessBegan | None = None
    result: ActionResult | None = None
    problem: ErrorRecord | None = None
    """Why there is no result."""


async def written(
    pieces: AsyncGenerator[Output | ProcessBegan | ActionResult, None],
) -> AsyncGenerator[bytes, None]:
    """Pieces as lines; what is raised becomes the last line."""
    try:
        async for piece in pieces:
            yield msgspec.json.encode(_line(piece)) + b"\n"
    except KNOWN as error:
        yield msgspec.json.encode(Piece(problem=problem_of(error)[0])) + b"\n"
    finally:
        await pieces.aclose()


def _line(piece: Output | ProcessBegan | ActionResult) -> Piece:
    if isinstance(piece, Output):
        return Piece(output=piece)
    return Piece(began=piece) if isinstance(piece, ProcessBegan) else Piece(result=piece)


async def read(
    chunks: AsyncIterable[bytes],
) -> AsyncGenerator[Output | ProcessBegan | ActionResult, None]:
    """The way back; raises what was raised there."""
    async for line in _lines(chunks):
        piece = msgspec.json.decode(line, type=Piece)
        if piece.problem is not None:
            raise raised(piece.problem)
        if piece.output is not None:
            yield piece.output
        if piece.began is not None:
            yield piece.began
        if piece.result is not None:
            yield piece.result


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Lines of any length: the one with the result holds all of the output."""
    line = bytearray()
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield bytes(line + end)
            line.clear()
        line += rest
