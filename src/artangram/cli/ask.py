"""`artangram status`, `explain` and `drain`: what a running service does, why not, and where."""

import asyncio
from typing import Annotated

import typer

from artangram.cli.client import Token, Url, answering, client, service_url
from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram.core.scheduling.explain import Explanation
from artangram.orchestrator.records import ApiStatus, ClusterStatus


def status(
    url: Url = None,
    token: Token = None,
    json: Annotated[
        str | None,
        typer.Option(help="Write the result as JSON to this file; - is standard output."),
    ] = None,
) -> None:
    """Show what a running service does: queue, nodes, services, functions, APIs."""
    output = Printer(json)
    now = asyncio.run(_status(service_url(url), token))
    output.table(
        f"{now.policy}, up for {now.uptime_s:.0f} s" + (", draining" if now.is_draining else ""),
        ["queued", "running", "ended", "trajectories", "abandoned"],
        [_texts(now.queued, now.running, now.ended, now.trajectories, now.abandoned)],
    )
    _print_nodes(output, now)
    _print_callees(output, now)
    if now.waiting:
        rows = [[w.action, w.kind, w.trajectory or "-", f"{w.queued_s:.1f}"] for w in now.waiting]
        output.table("waiting longest", ["action", "kind", "trajectory", "queued s"], rows)
    output.json(now)


def _print_nodes(output: Printer, now: ClusterStatus) -> None:
    rows = []
    for node in now.nodes:
        here = node.population
        told = ("?", "?") if here is None else (here.sandboxes, here.hibernated)
        cores = f"{node.cores_used} of {node.cores}"
        memory = f"{node.memory_used_mb} of {node.memory_mb} MB"
        labels = ", ".join(f"{key}={value}" for key, value in sorted(node.labels.items()))
        row = (node.node, node.state, node.running, cores, memory, *told, labels or "-")
        rows.append(_texts(*row))
    names = ["node", "state", "running", "cores used", "memory held", "sandboxes", "asleep"]
    output.table("nodes", [*names, "labels"], rows)


def _print_callees(output: Printer, now: ClusterStatus) -> None:
    """Services, functions and APIs, as far as this cluster has any."""
    if now.services:
        services = [
            _texts(s.service, ", ".join(s.resident) or "-", s.busy, s.queued) for s in now.services
        ]
        title = f"services, {now.restores} restores"
        output.table(title, ["service", "resident", "busy", "queued"], services)
    if now.functions is not None:
        f = now.functions
        warm = f"{f.workers} of {f.ceiling}"
        row = _texts(f.registered, warm, f.busy, f.queued, f.cold_starts, f.hedges)
        names = ["functions", "warm workers", "busy", "queued", "cold starts", "hedges"]
        output.table("functions", names, [row])
    if now.apis:
        apis = [
            _texts(a.api, a.in_flight, a.queued, _window(a), _breaker(a.shut_s)) for a in now.apis
        ]
        output.table("APIs", ["api", "in flight", "queued", "window used", "breaker"], apis)


def _window(api: ApiStatus) -> str:
    if api.limit is None:
        return "no limit"
    return f"{api.window_used} of {api.limit} in {api.window_s:g} s"


def _breaker(shut_s: float) -> str:
    return f"shut for {shut_s:.1f} s" if shut_s else "lets calls through"


def _texts(*values: object) -> list[str]:
    return [str(value) for value in values]


def explain(
    action: Annotated[
        str, typer.Argument(help="Id of a waiting action; `status` lists the oldest.")
    ],
    url: Url = None,
    token: Token = None,
    json: Annotated[
        str | None,
        typer.Option(help="Write the result as JSON to this file; - is standard output."),
    ] = None,
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


async def _status(url: str, token: str | None) -> ClusterStatus:
    async with answering(url), client(url, token) as one:
        return await one.status()


async def _explain(url: str, token: str | None, action: str) -> Explanation:
    async with answering(url), client(url, token) as one:
        try:
            return await one.explain(action)
        except KeyError:
            fix = "`artangram status` lists waiting actions"
            raise BadInput("action", f"{action!r} is neither waiting nor running", fix) from None
