"""`artangram bench`: every figure the README quotes, measured anew.

One question per verb. A result names its machine, commit and date; with `--json` it is written to
a file, by convention in `benchmarks/results`.
"""

import typer

from artangram.cli.bench.coding import coding
from artangram.cli.bench.day import day
from artangram.cli.bench.engine import engine_verb
from artangram.cli.bench.functions import functions
from artangram.cli.bench.gateway import gateway_verb
from artangram.cli.bench.isolation import isolation
from artangram.cli.bench.lab import lab
from artangram.cli.bench.learn import learn
from artangram.cli.bench.live_agents import live_agents
from artangram.cli.bench.mopd import mopd
from artangram.cli.bench.overhead import overhead
from artangram.cli.bench.quota import quota
from artangram.cli.bench.rollout import rollout
from artangram.cli.bench.sandbox import sandbox
from artangram.cli.bench.scheduler import scheduler
from artangram.cli.bench.services import services

bench = typer.Typer(help="Measure: every figure of the README.", no_args_is_help=True)
for verb in (
    scheduler,
    lab,
    coding,
    mopd,
    day,
    sandbox,
    overhead,
    services,
    functions,
    quota,
    rollout,
    isolation,
    learn,
):
    bench.command()(verb)
# Not by their own names: the modules are called so.
bench.command("live")(live_agents)
bench.command("gateway")(gateway_verb)
bench.command("engine")(engine_verb)
