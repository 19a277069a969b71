"""Choose the next token of many requests at once.

A request draws its random numbers when it takes its slot, from its own seed if it has one: what it
samples then does not depend on what runs beside it.
"""

from collections.abc import Sequence

import torch
from msgspec import Struct
from torch import Tensor

from artangram.gateway.engines.protocol import Alternatives, Sampling
from artangram.gateway.engines.torchshaping import LogitShaper


class DrawnTokens(Struct, frozen=True):
    """A token for each slot, its logprob, and the likeliest ones beside it if they are wanted."""

    token_ids: list[int]
    logprobs: list[float]
    tops: list[Alternatives]


class Cuts(Struct, frozen=True, kw_only=True):
    """What is left of each row's tokens."""

    top_ps: Tensor
    top_ks: Tensor
    """0 for all."""
    min_ps: Tensor


class Sampler:
    """How each slot samples."""

    def __init__(self, num_slots: int, max_tokens: int, *, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._uniforms = torch.zeros(num_slots, max_tokens, dtype=torch.float64)
        self._temperatures = torch.ones(num_slots)
        self._top_ps = torch.ones(num_slots)
        self._top_ks = torch.zeros(num_slots, dtype=torch.long)
        self._min_ps = torch.zeros(num_slots)
        self._unusual: set[int] = set()
        self._cut: set[int] = set()
        self._shapers: dict[int, LogitShaper] = {}
        self._tops: dict[int, int] = {}
        """How many alternatives the slot tells, if any."""

    def prepare(
        self,
        slot: int,
        sampling: Sampling,
        *,
        room: int,
        prompt: Sequence[int] = (),
        num_sampled: int = 0,
    ) -> None:
        """From now on the slot samples like this, at most `room` tokens after `prompt`, of which
        the last `num_sampled` are part of the answer."""
        generator = self._generator
        if sampling.seed is not None:
            generator = torch.Generator().manual_seed(sampling.seed)
        uniforms = torch.rand(room, generator=generator, dtype=torch.float64)
        self._uniforms[slot, :room] = uniforms
        self._temperatures[slot] = sampling.temperature
        self._top_ps[slot] = sampling.top_p
        self._top_ks[slot] = sampling.top_k
        self._min_ps[slot] = sampling.min_p
        _put(self._unusual, slot, sampling.temperature != 1)
        _put(self._cut, slot, sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0)
        self._shapers.pop(slot, None)
        if LogitShaper.is_needed(sampling):
            shaper = LogitShaper(sampling, prompt=prompt, num_sampled=num_sampled)
            self._shapers[slot] = shaper
        self._tops.pop(slot, None)
        if sampling.top_logprobs:
            self._tops[slot] = sampling.top_logprobs

    @torch.inference_mode()
    def draw(self, logits: Tensor, slots: Sequence[int], *, counts: Sequence[int]) -> DrawnTokens:
        """A token for each slot; `counts` is how many each drew before."""
        chosen = torch.tensor(slots)
        uniforms = self._uniforms[chosen, torch.tensor(counts)]
        temperatures = None if self._unusual.isdisjoint(slots) else self._temperatures[chosen]
        found = log_probabilities(self._shaped(logits, slots), temperatures=temperatures)
        cuts = None if self._cut.isdisjoint(slots) else self._cuts(chosen)
        tokens = sampled(found, uniforms, temperatures=temperatures, cuts=cuts)
        drawn = DrawnTokens(
            tokens.tolist(),
            found.gather(1, tokens.unsqueeze(1)).squeeze(1).tolist(),
            self._alternatives(found, slots),
        )
        if self._shapers:
            for slot, token in zip(slots, drawn.token_ids, strict=True):
                if slot in self._shapers:
                    self._shapers[slot].took(token)
        return drawn

    def _shaped(self, logits: Tensor, slots: Sequence[int]) -> Tensor:
        if self._shapers.keys().isdisjoint(slots):
            return logits
        logits = logits.float().clone()
        for row, slot in enumerate(slots):
            if slot in self._shapers:
                logits[row] = self._shapers[slot].shaped(logits[row])
        return logits

    def _cuts(self, chosen: Tensor) -> Cuts:
        return Cuts(
            top_ps=self._top_ps[chosen], top_ks=self._top_ks[chosen], min_ps=self._min_ps[chosen]
        )

    def _alternatives(self, logprobs: Tensor, slots: Sequence[int]) -> list[Alternatives]:
        found: list[Alternatives] = [()] * len(slots)
        for row, slot in enumerate(slots if self._tops else ()):
            if slot in self._tops:
                best = logprobs[row].topk(min(self._tops[slot], logprobs.shape[1]))
                found[row] = tuple(
                    zip(best.indices.tolist(), best.values.tolist(), strict=True),
                )
        return found


def log_probabilities(logits: Tensor, *, temperatures: Tensor | None = None) -> Tensor:
    """Of every token, at the row's temperature, at 1 where that is 0."""
    if temperatures is not None:
        logits = logits / temperatures.masked_fill(temperatures == 0, 1.0).unsqueeze(1)
    return torch.log_softmax(logits.float(), dim=-1)


def sampled(
    logprobs: Tensor,
    uniforms: Tensor,
    *,
    temperatures: Tensor | None = None,
    cuts: Cuts | None = None,
) -> Tensor:
    """A token per row, the likeliest where the temperature is 0.

    `uniforms` are numbers from 0 (inclusive) to 1: the share of probability before the token.
    """
    probabilities = logprobs.exp().double()
    if cuts is not None:
        probabilities = _left(probabilities, cuts)
    shares = probabilities.cumsum(dim=-1)
    tokens = torch.searchsorted(shares, uniforms.unsqueeze(1) * shares[:, -1:], right=True)
    tokens = tokens.clamp(max=logprobs.shape[1] - 1)  # A share may be rounded up to all.
    if temperatures is not None:
        likeliest = logprobs.argmax(dim=-1, keepdim=True)
        tokens = torch.where((temperatures == 0).unsqueeze(1), likeliest, tokens)
    return tokens.squeeze(1)


def _left(probabilities: Tensor, cuts: Cuts) -> Tensor:
    """Of the tokens that `min_p` and `top_k` leave, the fewest that have the share `top_p`."""
    ordered, order = probabilities.sort(dim=-1, descending=True)
    size = ordered.shape[1]
    most = cuts.top_ks.masked_fill(cuts.top_ks == 0, size).unsqueeze(1)
    is_out = torch.arange(size).unsqueeze(0) >= most
    is_out |= ordered < cuts.min_ps.unsqueeze(1) * ordered[:, :1]
    ordered = ordered.masked_fill(is_out, 0.0)
    before = ordered.cumsum(dim=-1) - ordered
    enough = cuts.top_ps.unsqueeze(1) * ordered.sum(dim=-1, keepdim=True)
    ordered = ordered.masked_fill(before >= enough, 0.0)
    return torch.zeros_like(probabilities).scatter(1, order, ordered)


def _put(slots: set[int], slot: int, belongs: bool) -> None:
    if belongs:
        slots.add(slot)
    else:
        slots.discard(slot)
