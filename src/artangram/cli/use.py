"""`artangram use`: what every job has used, what that costs, and what static provisioning would."""

import asyncio
import csv
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer

from artangram.cli.client import Token, Url, answering, client, service_url
from artangram.cli.output import JsonFile, Printer, write_file
from artangram.orchestrator.use import (
    AMOUNTS,
    HOUR_S,
    MB_PER_GB,
    Prices,
    UseReport,
    alternatives,
    by_job,
    csv_rows,
    parse_prices,
)

_Price = Annotated[
    list[str] | None,
    typer.Option(
        help="What a unit costs, as in cpu=0.04: cpu (core-hour), memory (GB-hour), gpu "
        "(device-hour), slot (slot-hour), call, tokens (a million)."
    ),
]


def use(
    url: Url = None,
    token: Token = None,
    price: _Price = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="A row for every task of a job.")] = False,
    csv: Annotated[
        Path | None, typer.Option(help="Write a row for every task of every job as CSV.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Show what every job has used, what it costs, and what static provisioning would cost."""
    prices, output = parse_prices(price or ()), Printer(json)
    report = asyncio.run(_use(service_url(url), token))
    print_use(output, report, prices, with_tasks=tasks)
    if csv is not None:
        write_file(csv, as_csv(report, prices))
    output.json(report)


def print_use(output: Printer, report: UseReport, prices: Prices, *, with_tasks: bool) -> None:
    """The accounts as a table, and below it what others would have held."""
    is_priced = prices != Prices()
    rows = []
    found = report.rows if with_tasks else by_job(report.rows)
    for row in (*found, report.total):
        figures = (row.actions, row.failed, row.trajectories)
        hours = (row.core_s, row.memory_mb_s / MB_PER_GB, row.device_s, row.slot_s)
        name = f"{row.job} {row.task}".strip() if with_tasks else row.job
        cells = [name, *map(str, figures), *(f"{x / HOUR_S:.3f}" for x in hours)]
        cells += [str(row.calls), str(row.tokens)]
        rows.append(cells + ([f"{prices.of(row):.4f}"] if is_priced else []))
    columns = ["job", "actions", "failed", "trajectories", "core h", "GB h", "device h", "slot h"]
    columns += ["calls", "tokens", *(["cost"] if is_priced else [])]
    lasted_h = (report.at - report.began_at) / HOUR_S
    output.table(f"use in {lasted_h:.2f} h, what runs now included", columns, rows)
    ways = alternatives(report, prices)
    columns = ["the same work", "core h", "device h", *(["cost"] if is_priced else [])]
    cells = [
        [way.name, f"{way.core_s / HOUR_S:.3f}", f"{way.device_s / HOUR_S:.3f}"]
        + ([f"{way.cost:.4f}"] if is_priced else [])
        for way in ways
    ]
    output.table("against static provisioning", columns, cells)
    for way in ways:
        output.console.print(f"{way.name}: {way.reason}.", soft_wrap=True)


def as_csv(report: UseReport, prices: Prices) -> bytes:
    """A row for every task of every job."""
    text = StringIO()
    writer = csv.DictWriter(text, ["job", "task", *AMOUNTS, "cost"])
    writer.writeheader()
    for row in csv_rows(report, prices):
        # A spreadsheet would run a name that begins like a formula.
        names = {name: _inert(str(row[name])) for name in ("job", "task")}
        writer.writerow({**row, **names})
    return text.getvalue().encode()


def _inert(name: str) -> str:
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t")) else name


async def _use(url: str, token: str | None) -> UseReport:
    async with answering(url), client(url, token) as one:
        return await one.use()
