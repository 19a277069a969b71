"""`artangram bench`: every figure the README quotes, measured anew.

One question per verb. A result names its machine, commit and date; with `--json` it is written to
a file, by convention in `benchmarks/results`.
"""

import typer

from artangram.cli.bench.coding import coding
from artangram.cli.bench.day import day
from artangram.cli.bench.lab import lab
from artangram.cli.bench.live_agents import live_agents
from artangram.cli.bench.mopd import mopd
from artangram.cli.bench.overhead import overhead
from artangram.cli.bench.sandbox import sandbox
from artangram.cli.bench.scheduler import scheduler
from artangram.cli.bench.services import services

bench = typer.Typer(help="Measure: every figure of the README.", no_args_is_help=True)
for verb in (scheduler, lab, coding, mopd, day, sandbox, overhead, services):
    bench.command()(verb)
# Not by its own name: the module `live` is another one.
bench.command("live")(live_agents)
