"""Choose the next token of many requests at once.

A request draws its random numbers when it takes its slot, from its own seed if it has one: what it
samples then does not depend on what runs beside it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from artangram.gateway.engines.protocol import Sampling


class Sampler:
    """How each slot samples."""

    def __init__(self, num_slots: int, max_tokens: int, *, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._uniforms = torch.zeros(num_slots, max_tokens, dtype=torch.float64)
        self._temperatures = torch.ones(num_slots)
        self._top_ps = torch.ones(num_slots)
        self._unusual: set[int] = set()
        self._cut: set[int] = set()

    def prepare(self, slot: int, sampling: Sampling, *, room: int) -> None:
        """From now on the slot samples like this, at most `room` tokens."""
        generator = self._generator
        if sampling.seed is not None:
            generator = torch.Generator().manual_seed(sampling.seed)
        uniforms = torch.rand(room, generator=generator, dtype=torch.float64)
        self._uniforms[slot, :room] = uniforms
        self._temperatures[slot] = sampling.temperature
        self._top_ps[slot] = sampling.top_p
        _put(self._unusual, slot, sampling.temperature != 1)
        _put(self._cut, slot, sampling.top_p < 1)

    @torch.inference_mode()
    def draw(
        self, logits: Tensor, slots: Sequence[int], *, counts: Sequence[int]
    ) -> tuple[list[int], list[float]]:
        """A token for each slot and its logprob; `counts` is how many each drew before."""
        chosen = torch.tensor(slots)
        uniforms = self._uniforms[chosen, torch.tensor(counts)]
        temperatures = None if self._unusual.isdisjoint(slots) else self._temperatures[chosen]
        top_ps = None if self._cut.isdisjoint(slots) else self._top_ps[chosen]
        tokens, logprobs = sampled(logits, uniforms, temperatures=temperatures, top_ps=top_ps)
        return tokens.tolist(), logprobs.tolist()


def sampled(
    logits: Tensor,
    uniforms: Tensor,
    *,
    temperatures: Tensor | None = None,
    top_ps: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A token per row and its logprob at the row's temperature, at 1 where that is 0.

    `uniforms` are numbers from 0 (inclusive) to 1: the share of probability before the token.
    """
    if temperatures is not None:
        logits = logits / temperatures.masked_fill(temperatures == 0, 1.0).unsqueeze(1)
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    probabilities = logprobs.exp().double()
    if top_ps is not None:
        probabilities = _likeliest(probabilities, top_ps)
    shares = probabilities.cumsum(dim=-1)
    tokens = torch.searchsorted(shares, uniforms.unsqueeze(1) * shares[:, -1:], right=True)
    tokens = tokens.clamp(max=logits.shape[1] - 1)  # A share may be rounded up to all.
    if temperatures is not None:
        likeliest = logits.argmax(dim=-1, keepdim=True)
        tokens = torch.where((temperatures == 0).unsqueeze(1), likeliest, tokens)
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)


def _likeliest(probabilities: Tensor, top_ps: Tensor) -> Tensor:
    """Only the fewest tokens that together have the share `top_p`."""
    ordered, order = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    ordered = ordered.masked_fill(before >= top_ps.unsqueeze(1), 0.0)
    return torch.zeros_like(probabilities).scatter(1, order, ordered)


def _put(slots: set[int], slot: int, belongs: bool) -> None:
    if belongs:
        slots.add(slot)
    else:
        slots.discard(slot)
