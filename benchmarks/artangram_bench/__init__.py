"""`artangram bench`: measures every figure of the documentation.

One question per verb. A result names its machine, commit and date; with `--json` it is written to
a file, by convention in `benchmarks/results`.
"""

import typer

from artangram_bench.besideray import beside_ray
from artangram_bench.coding import coding
from artangram_bench.day import day
from artangram_bench.engine import engine_verb
from artangram_bench.functions import functions
from artangram_bench.gateway import gateway_verb
from artangram_bench.isolation import isolation
from artangram_bench.kill import kill
from artangram_bench.lab import lab
from artangram_bench.learn import learn
from artangram_bench.live_agents import live_agents
from artangram_bench.mopd import mopd
from artangram_bench.overhead import overhead
from artangram_bench.predict import predict
from artangram_bench.quickstart import quickstart
from artangram_bench.quota import quota
from artangram_bench.rollout import rollout
from artangram_bench.sandbox import sandbox
from artangram_bench.scale import scale
from artangram_bench.scheduler import scheduler
from artangram_bench.services import services
from artangram_bench.soak import soak
from artangram_bench.timeouts import timeouts

bench = typer.Typer(help="Measure every figure of the documentation.", no_args_is_help=True)
for verb in (
    scheduler,
    lab,
    coding,
    timeouts,
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
    quickstart,
    soak,
    kill,
    predict,
    scale,
):
    bench.command()(verb)
# Not by their own names: the modules are called so.
bench.command("live")(live_agents)
bench.command("ray")(beside_ray)
bench.command("gateway")(gateway_verb)
bench.command("engine")(engine_verb)
