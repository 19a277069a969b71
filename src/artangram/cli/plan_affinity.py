"""`artangram plan affinity`: whether two kinds of accelerators pay for the tasks of a run."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, structs

from artangram.cli.output import JsonFile, Printer, claim_picture, keep_apart, writing
from artangram.core.errors import BadInput
from artangram.gateway.hardware import hardware, model_shape
from artangram.pipeline import metrics
from artangram.sim.affinity import (
    TRAINER_BOUND,
    WORTH,
    AffinityPlan,
    GainMap,
    Purchase,
    TaskMix,
    TwoKinds,
    affinity_plan,
    gain_map,
    mix_of,
)
from artangram.sim.affinityplot import draw_gains


class AffinityAnswer(Struct, frozen=True, kw_only=True):
    """What `--json` writes."""

    model: str
    mix: TaskMix
    training: float
    """Share of a step for which the trainer was busy."""
    plan: AffinityPlan
    gains: GainMap | None
    simulated: dict[str, float] | None
    """Seconds of a step: of each kind alone, and of both; `None` unless `--confirm`."""
    verdict: str


def affinity(
    run: Annotated[Path, typer.Argument(help="The directory of a run of `artangram train`.")],
    devices: Annotated[
        str, typer.Option(help="Devices that sample, two kinds, as in H800=64,H20=24.")
    ],
    model: Annotated[str, typer.Option(help="The model's shape, as in qwen3-8b.")] = "qwen3-8b",
    price: Annotated[
        list[str] | None,
        typer.Option(help="What a device costs, as in H20=1.5. Default: relative list prices."),
    ] = None,
    hit_rate: Annotated[
        float | None,
        typer.Option(help="Of what was read before; without it, what engines reported."),
    ] = None,
    confirm: Annotated[
        bool, typer.Option(help="Simulate the point as well; needs a checkout, takes minutes.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the gain over hit rate and mix (.svg or .png).")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Say whether two kinds of accelerators pay for a run's tasks, what to buy, what to declare.

    Tasks are what the run recorded of them. The answer is that of a fluid, whose devices never
    wait: an upper bound. Purchases cost the same, and gains are against the better kind alone.
    """
    output = Printer(json)
    keep_apart({"--json": json, "--plot": plot})
    if plot is not None:
        claim_picture(plot)
    model_shape(model)
    records = metrics.read(run / metrics.FILE_NAME)
    if not records:
        fix = "name a directory with the metrics.jsonl of a run"
        raise BadInput(str(run), "has no recorded step", fix)
    mix, bought = mix_of(records[-1].tokens), _devices(devices, price or ())
    hits = _hits(mix, hit_rate)
    training = _training(records)
    plan = affinity_plan(mix, bought, model=model, hit_rate=hits)
    gains = gain_map(mix, bought, model=model, hit_rate=hits)
    simulated = _simulated(mix, bought, model=model, hit_rate=hits) if confirm else None
    verdict = verdict_of(plan, training=training)
    _show(output, mix, plan, training=training, simulated=simulated)
    output.console.print(verdict, soft_wrap=True)
    if plot is not None:
        _draw(output, gains, plot, mix=mix, hit_rate=hits, devices=devices)
    output.json(
        AffinityAnswer(
            model=model,
            mix=mix,
            training=training,
            plan=plan,
            gains=gains,
            simulated=simulated,
            verdict=verdict,
        )
    )


def _devices(text: str, prices: "list[str] | tuple[()]") -> TwoKinds:
    counts = {kind: int(number) for kind, number in _pairs("devices", text.split(",")).items()}
    cost = {kind: hardware(kind).price for kind in counts}
    return TwoKinds(counts=counts, prices=cost | _pairs("price", prices))


def _pairs(option: str, texts: "list[str] | tuple[()]") -> dict[str, float]:
    found = {}
    for text in texts:
        kind, _, number = text.partition("=")
        try:
            found[kind] = float(number)
        except ValueError:
            raise BadInput(option, f"{text!r} is not KIND=NUMBER", "write H20=24") from None
    return found


def _hits(mix: TaskMix, said: float | None) -> float:
    hits = mix.hit_rate if said is None else said
    if hits is None:
        fix = "say --hit-rate, or let engines report it (vLLM: --enable-prompt-tokens-details)"
        raise BadInput("hit-rate", "no engine of the run reported its cache hits", fix)
    if not 0.0 <= hits <= 1.0:
        raise BadInput("hit-rate", f"{hits} is no share", "say 0 to 1")
    return hits


def _training(records: list[metrics.StepRecord]) -> float:
    busy_s = sum(one.train_s for one in records)
    return busy_s / max(1e-9, busy_s + sum(one.collect_s for one in records))


def verdict_of(plan: AffinityPlan, *, training: float) -> str:
    """What to do, in a sentence or two."""
    if training >= TRAINER_BOUND:
        return (
            f"trainer-bound: no gain. The trainer is busy for {training:.0%} of a step; "
            "faster sampling changes nothing until it has more devices."
        )
    if plan.best_gain < WORTH:
        (kind,) = min(plan.alone.values(), key=lambda one: one.step_s).devices
        return f"No gain: for this money {kind} alone are as fast as any mix. Declare nothing."
    declared = ", ".join(f"{task}: {kind}" for task, kind in plan.declare.items())
    is_best = plan.gain >= plan.best_gain / WORTH
    advice = "Keep these devices" if is_best else f"For this money buy {_named(plan.best)}"
    return (
        f"{advice}: up to {plan.best_gain:.2f}x over the better kind alone. "
        f"Declare {{{declared}}}, or `affinity: auto`."
    )


def _named(purchase: Purchase) -> str:
    return " and ".join(f"{count:.0f} {kind}" for kind, count in purchase.devices.items())


def _show(
    output: Printer,
    mix: TaskMix,
    plan: AffinityPlan,
    *,
    training: float,
    simulated: dict[str, float] | None,
) -> None:
    rows = [
        [
            name,
            f"{mix.shares[name]:.0%}",
            f"{one.turns:.1f}",
            f"{one.prompt_tokens:.0f}",
            f"{one.seen_tokens:.0f}",
            f"{one.reply_tokens:.0f}",
            plan.declare[name],
        ]
        for name, one in mix.tasks.items()
    ]
    columns = ["task", "share", "turns", "first prompt", "seen", "written", "belongs on"]
    output.table(f"hits {plan.hit_rate:.0%}, trainer busy for {training:.0%}", columns, rows)
    least_s = min(one.step_s for one in plan.alone.values())
    bought = [*plan.alone.values(), plan.given]
    bought += [] if plan.best in bought else [plan.best]
    columns = ["for the same money", "trajectories/s", "gain"]
    cells = [
        [_named(one), f"{1.0 / one.step_s:.2f}", f"{least_s / one.step_s:.2f}x"] for one in bought
    ]
    if simulated is not None:
        columns.append("simulated step s")
        for row, one in zip(cells, bought, strict=True):
            is_run = one is plan.given or len(one.devices) == 1
            row.append(f"{simulated['+'.join(one.devices)]:.1f}" if is_run else "")
    output.table("What a fluid makes of it", columns, cells)


def _draw(
    output: Printer,
    gains: GainMap | None,
    path: Path,
    *,
    mix: TaskMix,
    hit_rate: float,
    devices: str,
) -> None:
    if gains is None:
        output.console.print("No picture: with one task there is no mix to vary.", soft_wrap=True)
        return
    share = sum(mix.shares[task] for task in gains.readers)
    with writing(path):
        draw_gains(gains, path, hit_rate=hit_rate, share=share, title=devices)
    output.console.print(f"Picture: {path}", soft_wrap=True)


def _simulated(mix: TaskMix, devices: TwoKinds, *, model: str, hit_rate: float) -> dict[str, float]:
    try:
        from artangram_bench.simulated.confirm import confirmed
    except ModuleNotFoundError as error:
        if error.name != "artangram_bench":
            raise
        fix = "clone the repository and run `pip install -e .` there"
        raise BadInput("confirm", "the simulation is not part of the package", fix) from None
    return confirmed(mix.tasks, mix.shares, structs.asdict(devices), model=model, hit_rate=hit_rate)
