"""Learn by imitation before learning by reward: a model that never does right finds no reward.

Matrices inside the model are trained with Muon and all else with AdamW, which takes half the steps
of AdamW alone for a model as small as the demo's.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from msgspec import Struct
from torch.optim import AdamW, Muon, Optimizer

from artangram.models.causal import CausalModel, score
from artangram.models.packed import pack


class Demonstration(Struct, frozen=True):
    """Tokens, and which of them to imitate."""

    token_ids: tuple[int, ...]
    imitated: tuple[int, ...]
    """Places in `token_ids`, none of them the first."""


class WarmupSettings(Struct, frozen=True, kw_only=True):
    steps: int = 500
    batch: int = 32
    lr: float = 5e-3
    """Of AdamW."""
    muon_lr: float = 0.02
    """0 trains the matrices with AdamW, too."""
    rest: float = 0.1
    """How much the tokens count that are not imitated: reading helps copying."""


def imitate(
    model: CausalModel,
    demonstrations: Iterator[Demonstration],
    *,
    settings: WarmupSettings,
    on_step: Callable[[int, float], None] | None = None,
) -> float:
    """Train on demonstrations; the mean loss per imitated token over the last tenth."""
    optimisers = _optimisers(model, settings)
    rates = [group["lr"] for o in optimisers for group in o.param_groups]
    recent: list[float] = []
    for step in range(settings.steps):
        _set_rates(optimisers, rates, share=_rate(step, settings.steps))
        batch = [next(demonstrations) for _ in range(settings.batch)]
        loss = _learn(model, batch, optimisers, rest=settings.rest)
        recent.append(loss)
        if on_step is not None:
            on_step(step, loss)
    last = recent[-max(1, settings.steps // 10) :]
    return sum(last) / len(last)


def _learn(
    model: CausalModel,
    batch: Sequence[Demonstration],
    optimisers: Sequence[Optimizer],
    *,
    rest: float,
) -> float:
    packed = pack([demonstration.token_ids for demonstration in batch])
    weights = torch.full((len(packed),), rest)
    starts = packed.starts.tolist()
    at = [start + i for start, d in zip(starts, batch, strict=True) for i in d.imitated]
    weights[at] = 1 + rest
    later = packed.later_tokens()
    losses = -score(model, packed, at=later).logprobs
    torch.autograd.backward((losses * weights[later]).sum() / len(at))
    others = [p for group in optimisers[0].param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(others, 1.0)
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    is_imitated = weights[later] > rest
    return float(losses.detach()[is_imitated].mean())


def _optimisers(model: CausalModel, settings: WarmupSettings) -> list[Optimizer]:
    """AdamW for embeddings and norms, Muon for what multiplies inside."""
    named = model.tensors()
    shared = {named[name].data_ptr() for name in named if "embed" in name or "head" in name}
    inner = [p for p in model.parameters() if p.dim() == 2 and p.data_ptr() not in shared]
    chosen = {id(p) for p in inner} if settings.muon_lr else set()
    others = [p for p in model.parameters() if id(p) not in chosen]
    adamw = AdamW(others, lr=settings.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    if not chosen:
        return [adamw]
    return [adamw, Muon(inner, lr=settings.muon_lr, momentum=0.9, weight_decay=0.0)]


def _rate(step: int, steps: int) -> float:
    """Up over the first twenty steps, then down to a twentieth."""
    return max(0.05, min(1.0, (step + 1) / 20) * (1 - 0.95 * step / steps))


def _set_rates(optimisers: Sequence[Optimizer], rates: Sequence[float], *, share: float) -> None:
    groups = [group for optimiser in optimisers for group in optimiser.param_groups]
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate * share
