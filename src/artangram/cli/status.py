"""`artangram status` and `top`: what a running service does, once or again and again."""

import asyncio
import time
from contextlib import suppress
from typing import Annotated

import typer
from rich.control import Control

from artangram.cli.client import Token, Url, answering, client, service_url
from artangram.cli.output import JsonFile, Printer
from artangram.cli.standard import harmless
from artangram.orchestrator.records import ApiStatus, ClusterStatus
from artangram.orchestrator.statusrecords import PoolStatus

_Every = Annotated[
    float, typer.Option("--every", help="Seconds between two looks.", min=0.1, max=3600)
]


def status(
    url: Url = None,
    token: Token = None,
    json: JsonFile = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")
    ] = False,
    every_s: _Every = 2.0,
) -> None:
    """Show what a running service does: what is in use, which jobs run, what waits and why."""
    output = Printer(json)
    if watch:
        _watch(service_url(url), token, output, every_s)
        return
    now = asyncio.run(_status(service_url(url), token))
    show(output, now)
    output.json(now)


def top(
    url: Url = None,
    token: Token = None,
    every_s: _Every = 2.0,
) -> None:
    """Watch what a running service does, until Ctrl-C."""
    _watch(service_url(url), token, Printer(None), every_s)


def _watch(url: str, token: str | None, output: Printer, every_s: float) -> None:
    console = output.console
    with suppress(KeyboardInterrupt):
        while True:
            now = asyncio.run(_status(url, token))
            if console.is_terminal:
                console.control(Control.home(), Control.clear())
            show(output, now)
            output.json(now)
            time.sleep(every_s)


def show(output: Printer, now: ClusterStatus) -> None:
    """One look, for people."""
    output.table(
        f"{now.policy}, up for {now.uptime_s:.0f} s" + (", draining" if now.is_draining else ""),
        ["queued", "running", "ended", "trajectories", "abandoned"],
        [_texts(now.queued, now.running, now.ended, now.trajectories, now.abandoned)],
    )
    for warning in now.warnings:
        output.console.print(f"Warning: {harmless(warning)}", soft_wrap=True, markup=False)
    rows = [[one.resource, *_full(one)] for one in now.pools]
    output.table("in use", ["of", "used", "all", "unit", "share"], rows)
    _print_jobs(output, now)
    _print_nodes(output, now)
    _print_callees(output, now)
    if now.longest:
        rows = [
            _texts(r.action, r.kind, r.job, r.where, r.units or "-", f"{r.held_s:.1f}")
            for r in now.longest
        ]
        output.table("running longest", ["action", "kind", "job", "where", "cores", "for s"], rows)
    if now.waiting:
        rows = [
            [w.action, w.kind, w.job, w.trajectory or "-", f"{w.queued_s:.1f}", w.reason]
            for w in now.waiting
        ]
        names = ["action", "kind", "job", "trajectory", "queued s", "waits for"]
        output.table("waiting longest", names, rows)


def _full(one: PoolStatus) -> list[str]:
    share = f"{100 * one.used / one.capacity:.0f} %" if one.capacity else "-"
    return [str(one.used), str(one.capacity), one.unit, share]


def _print_jobs(output: Printer, now: ClusterStatus) -> None:
    if not now.jobs:
        return
    rows = [
        _texts(
            *(j.job, f"{j.share:g}", j.running, j.queued, j.trajectories, j.cores),
            *(j.memory_mb, j.devices, j.waits_for or "-"),
        )
        for j in now.jobs
    ]
    names = ["job", "share", "running", "queued", "trajectories", "cores", "MB", "devices"]
    output.table("jobs", [*names, "waits for"], rows)


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


async def _status(url: str, token: str | None) -> ClusterStatus:
    async with answering(url), client(url, token) as one:
        return await one.status()
