"""Where `--trace` points: a file, or the address of a running service, whose trace is fetched."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from artangram.cli.client import plainly_refused
from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram.orchestrator.arguments import as_address

TraceOption = Annotated[
    str,
    typer.Option(
        help="The trace (.jsonl or .jsonl.gz), or the address of a running service.",
        show_default=False,
    ),
]
PIECE_BYTES = 256 * 1024


def is_address(trace: str) -> bool:
    return trace.startswith(("http://", "https://"))


@contextmanager
def trace_file(trace: str, token: str | None, output: Printer) -> Iterator[Path]:
    """The file that `trace` names; what a service recorded is there while the block lasts."""
    if not is_address(trace):
        yield Path(trace)
        return
    with tempfile.TemporaryDirectory() as folder, output.progress() as progress:
        task = progress.add_task(f"fetching the trace of {trace}")
        path = Path(folder, "recorded.jsonl.gz")
        with plainly_refused():
            asyncio.run(_fetch(as_address(trace), token, path))
        progress.remove_task(task)
        yield path


async def _fetch(url: str, token: str | None, path: Path) -> None:
    import aiohttp  # Needs an extra.

    from artangram.orchestrator.errors import ErrorRecord, raised

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{url.rstrip('/')}/v1/trace") as answer,
        ):
            if answer.status != HTTPStatus.OK:
                raise raised(msgspec.json.decode(await answer.read(), type=ErrorRecord))
            with path.open("wb") as file:
                async for piece in answer.content.iter_chunked(PIECE_BYTES):
                    file.write(piece)
    except (aiohttp.ClientError, msgspec.MsgspecError) as error:
        fix = "check the address, or `artangram trace record` on its machine"
        raise BadInput("trace", f"{url} gives no trace: {error}", fix) from None
