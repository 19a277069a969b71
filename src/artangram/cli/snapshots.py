"""`artangram snapshots`: what the nodes of a service keep for siblings, and the end of some."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from artangram.cli.client import Token, Url, answering, client, service_url
from artangram.cli.output import JsonFile, Printer
from artangram.sandbox.snapshot import SnapshotInfo

_COLUMNS = ["name", "node", "MB", "age h", "idle h", "sandboxes", "goes after h idle"]


def snapshots(
    forget: Annotated[
        list[str] | None, typer.Option(help="Name of a snapshot to drop first. Repeat it.")
    ] = None,
    url: Url = None,
    token: Token = None,
    json: JsonFile = None,
) -> None:
    """List the snapshots that trajectories can start from, or drop some of them."""
    found = asyncio.run(_left(service_url(url), token, forget or ()))
    output = Printer(json)
    output.table("snapshots", _COLUMNS, [_row(one) for one in found])
    output.json(found)


def _row(one: SnapshotInfo) -> list[str]:
    goes = "on demand" if one.keep_s is None else _hours(one.keep_s)
    figures = [f"{one.size_bytes / (1 << 20):.1f}", _hours(one.age_s), _hours(one.idle_s)]
    return [one.name, one.node, *figures, str(one.num_sandboxes), goes]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"


async def _left(url: str, token: str | None, forget: Sequence[str]) -> tuple[SnapshotInfo, ...]:
    async with answering(url), client(url, token) as one:
        for name in forget:
            await one.forget(name)
        return await one.snapshots()
