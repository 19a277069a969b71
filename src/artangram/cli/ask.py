"""`artangram status` and `artangram explain`: what a running service does, and why it does not."""

import asyncio
from typing import Annotated

import typer

from artangram.cli.house import Token, Url, house, service_url
from artangram.cli.output import Output
from artangram.core.errors import BadInput
from artangram.core.explain import Explanation
from artangram.orchestrator.records import Status


def status(
    url: Url = None,
    token: Token = None,
    json: Annotated[str | None, typer.Option(help="Write it here; - is stdout.")] = None,
) -> None:
    """What a service started with `up` is doing."""
    output = Output(json)
    now = asyncio.run(_status(service_url(url), token))
    output.table(
        f"{now.policy}, up for {now.uptime_s:.0f} s" + (", draining" if now.is_draining else ""),
        ["queued", "running", "ended", "trajectories"],
        [[str(n) for n in (now.queued, now.running, now.ended, now.trajectories)]],
    )
    rows = [[node.node, str(node.running), str(node.cores_used)] for node in now.nodes]
    output.table("nodes", ["node", "running", "cores used"], rows)
    output.json(now)


def explain(
    action: Annotated[str, typer.Argument(help="The id of a waiting action.")],
    url: Url = None,
    token: Token = None,
    json: Annotated[str | None, typer.Option(help="Write it here; - is stdout.")] = None,
) -> None:
    """Why an action waits, resource by resource, and what would let it start."""
    output = Output(json)
    why = asyncio.run(_explain(service_url(url), token, action))
    output.console.print(f"{why.action_id}: {why.state}; {why.summary}", soft_wrap=True)
    rows = [[h.resource, str(h.needed), str(h.free), str(h.ahead)] for h in why.hindrances]
    if rows:
        output.table("hindrances", ["resource", "needed", "free", "ahead"], rows)
    for hindrance in why.hindrances:
        output.console.print(f"starts when {hindrance.starts_when}", soft_wrap=True)
    output.json(why)


async def _status(url: str, token: str | None) -> Status:
    async with house(url, token) as one:
        return await one.status()


async def _explain(url: str, token: str | None, action: str) -> Explanation:
    async with house(url, token) as one:
        try:
            return await one.explain(action)
        except KeyError:
            fix = "ask `artangram status`; ended actions are not explained"
            raise BadInput("action", f"{action!r} neither waits nor runs", fix) from None
