"""`artangram explain`, `history`, `cancel`, `close`, `drain`: one action, job or node."""

import asyncio
from datetime import datetime
from typing import Annotated

import typer

from artangram.cli.client import Token, Url, answering, client, service_url
from artangram.cli.output import JsonFile, Printer
from artangram.core.errors import BadInput
from artangram.core.ids import JobId
from artangram.core.scheduling.explain import Explanation
from artangram.observe.history import HistoryEntry


def explain(
    action: Annotated[
        str, typer.Argument(help="Id of a waiting action; `status` lists the oldest.")
    ],
    url: Url = None,
    token: Token = None,
    json: JsonFile = None,
) -> None:
    """Show why an action waits, resource by resource, and what would let it start."""
    output = Printer(json)
    why = asyncio.run(_explain(service_url(url), token, action))
    output.console.print(f"{why.action_id}: {why.state}; {why.summary}", soft_wrap=True)
    rows = [[h.resource, str(h.needed), str(h.free), str(h.ahead)] for h in why.hindrances]
    if rows:
        output.table("hindrances", ["resource", "needed", "free", "ahead"], rows)
    for hindrance in why.hindrances:
        output.console.print(f"starts when {hindrance.starts_when}", soft_wrap=True)
    output.json(why)


def history(
    action: Annotated[str, typer.Argument(help="Id of an action, also of one that has ended.")],
    url: Url = None,
    token: Token = None,
    json: JsonFile = None,
) -> None:
    """Show what happened to an action, from its submission to its end."""
    output = Printer(json)
    found = asyncio.run(_history(service_url(url), token, action))
    began_at = found[0].at
    when = datetime.fromtimestamp(began_at).astimezone().isoformat(sep=" ", timespec="milliseconds")
    output.console.print(f"{action}, since {when}", soft_wrap=True)
    for one in found:
        line = f"{one.at - began_at:>10.3f} s  {one.what:<10} {one.detail}"
        output.console.print(line, soft_wrap=True)
    output.json(found)


def cancel(
    action: Annotated[str, typer.Argument(help="Id of an action that waits or runs.")],
    url: Url = None,
    token: Token = None,
) -> None:
    """Stop an action; its caller hears that it was cancelled."""
    asyncio.run(_cancel(service_url(url), token, action))
    Printer(None).console.print(f"{action} is being stopped.", soft_wrap=True)


def close(
    job: Annotated[str, typer.Argument(help="Name of a job; `status` lists them.")],
    url: Url = None,
    token: Token = None,
) -> None:
    """Close every trajectory of a job; what it has waiting or running is cancelled."""
    num = asyncio.run(_close(service_url(url), token, job))
    Printer(None).console.print(f"Closed {num} trajectories of {job}.", soft_wrap=True)


def drain(
    node: Annotated[str, typer.Argument(help="Name of a node; `status` lists them.")],
    undo: Annotated[
        bool, typer.Option("--undo", help="Let it take new trajectories again.")
    ] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Send a node no new trajectories; it leaves the cluster when the last one there is closed."""
    asyncio.run(_drain(service_url(url), token, node, undo=undo))
    said = f"{node} gets no new trajectories, and leaves when the last one there is closed."
    Printer(None).console.print(
        f"{node} takes new trajectories again." if undo else said, soft_wrap=True, markup=False
    )


async def _drain(url: str, token: str | None, node: str, *, undo: bool) -> None:
    async with answering(url), client(url, token) as one:
        await one.drain(node, undo=undo)


async def _history(url: str, token: str | None, action: str) -> tuple[HistoryEntry, ...]:
    async with answering(url), client(url, token) as one:
        try:
            return await one.history(action)
        except KeyError:
            fix = "results are kept for a while only; see `artangram status`"
            raise BadInput("action", f"{action!r} is not known", fix) from None


async def _cancel(url: str, token: str | None, action: str) -> None:
    await _explain(url, token, action)  # One that is unknown is said.
    async with answering(url), client(url, token) as one:
        await one.cancel(action)


async def _close(url: str, token: str | None, job: str) -> int:
    async with answering(url), client(url, token) as one:
        jobs = {known.job: known for known in (await one.status()).jobs}
        if job not in jobs or not jobs[JobId(job)].trajectories:
            known = ", ".join(sorted(name for name in jobs if jobs[name].trajectories))
            fix = f"name one of: {known}" if known else "no job has an open one"
            raise BadInput("job", f"{job!r} has no open trajectory", fix)
        await one.close_job(job)
        return jobs[JobId(job)].trajectories


async def _explain(url: str, token: str | None, action: str) -> Explanation:
    async with answering(url), client(url, token) as one:
        try:
            return await one.explain(action)
        except KeyError:
            fix = "`artangram status` lists waiting actions"
            raise BadInput("action", f"{action!r} is neither waiting nor running", fix) from None
