"""`artangram warmup`: a short supervised training on conversations, before a run by reward."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from artangram.cli.output import JsonFile, Printer
from artangram.core.errors import BadInput

if TYPE_CHECKING:
    from artangram.train.warmup import WarmupSettings


class WarmedUp(Struct, frozen=True, kw_only=True):
    """What `--json` writes."""

    model: str
    out: str
    demonstrations: int
    """Conversations that were imitated."""
    num_too_long: int
    num_low_reward: int
    steps: int
    loss_before: float
    """Mean loss of an imitated token, over the first tenth of the steps."""
    loss: float
    """The same, over the last tenth."""


def warmup(
    model: Annotated[Path, typer.Argument(help="Directory of the model to begin with.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            help='Conversations: JSON lines with {"messages": [...]}, or the transcripts.jsonl.gz '
            "of a run.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory for the new model.")],
    steps: Annotated[int, typer.Option(help="Number of optimiser steps.", min=1)] = 100,
    batch: Annotated[int, typer.Option(help="Conversations of a step.", min=1)] = 16,
    lr: Annotated[float, typer.Option(help="Learning rate of AdamW.", min=0.0)] = 1e-5,
    muon_lr: Annotated[
        float,
        typer.Option(
            help="Learning rate of Muon for the matrices inside the model; 0 trains them with "
            "AdamW, too.",
            min=0.0,
        ),
    ] = 0.0,
    rest: Annotated[
        float, typer.Option(help="Weight of the tokens that are read, not imitated.", min=0.0)
    ] = 0.0,
    min_reward: Annotated[
        float, typer.Option(help="Leave out attempts with a smaller reward.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the order of conversations.")] = 0,
    json: JsonFile = None,
) -> None:
    """Let a model imitate conversations, as a beginning for `train`.

    A model that never succeeds finds no reward to learn from. Of a run's transcripts, the attempts
    that succeeded are imitated, token for token.
    """
    from artangram.train.warmup import WarmupSettings

    if out.exists():
        raise BadInput(str(out), "exists", "name a directory that does not")
    settings = WarmupSettings(steps=steps, batch=batch, lr=lr, muon_lr=muon_lr, rest=rest)
    output = Printer(json)
    with output.progress() as progress:
        showing = progress.add_task("imitating", total=steps)

        def on_step(step: int, loss: float) -> None:
            progress.update(showing, advance=1, description=f"imitating, loss {loss:.3f}")

        done = _warmed(
            model,
            files,
            out,
            settings=settings,
            min_reward=min_reward,
            seed=seed,
            on_step=on_step,
        )
    output.console.print(_line(done), soft_wrap=True)
    output.json(done)


def _warmed(
    model: Path,
    files: Sequence[Path],
    out: Path,
    *,
    settings: "WarmupSettings",
    min_reward: float,
    seed: int,
    on_step: Callable[[int, float], None],
) -> WarmedUp:
    from artangram.models.beside import copy_beside_weights
    from artangram.models.directory import WEIGHTS_NAME, save_weights
    from artangram.models.loading import load_tokenizer
    from artangram.pipeline.demonstrations import read_demonstrations
    from artangram.train import checkpoint
    from artangram.train.placing import placed
    from artangram.train.warmup import imitate

    learner = placed(model, "cpu", seed=seed)
    shown = read_demonstrations(
        files, load_tokenizer(model), max_context=learner.max_context, min_reward=min_reward
    )
    losses: list[float] = []

    def learned(step: int, loss: float) -> None:
        losses.append(loss)
        on_step(step, loss)

    loss = imitate(learner, shown.shuffled(seed), settings=settings, on_step=learned)

    def write(directory: Path) -> None:
        copy_beside_weights(model, directory)
        save_weights(learner.tensors(), directory / WEIGHTS_NAME)

    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.put(out, write=write)
    return WarmedUp(
        model=str(model),
        out=str(out),
        demonstrations=len(shown.demonstrations),
        num_too_long=shown.num_too_long,
        num_low_reward=shown.num_low_reward,
        steps=settings.steps,
        loss_before=fmean(losses[: max(1, settings.steps // 10)]),
        loss=loss,
    )


def _line(done: WarmedUp) -> str:
    left = {"too long": done.num_too_long, "of a low reward": done.num_low_reward}
    left_out = [f"{count} {why}" for why, count in left.items() if count]
    without = f" ({', '.join(left_out)} left out)" if left_out else ""
    return (
        f"{done.out}: imitated {done.demonstrations} conversations{without} in {done.steps} steps; "
        f"loss of a token {done.loss_before:.3f} > {done.loss:.3f}"
    )
