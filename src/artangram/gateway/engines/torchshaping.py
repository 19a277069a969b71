"""Penalties and biases of one request: what they make of its logits.

As vLLM computes them: biases first, then the repetition penalty, which also counts the prompt, then
those for frequency and presence, which count the answer alone.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from artangram.gateway.engines.protocol import Sampling


class LogitShaper:
    """See the module."""

    def __init__(self, sampling: Sampling, *, prompt: Sequence[int], num_sampled: int) -> None:
        """The last `num_sampled` tokens of the prompt are part of the answer."""
        given = len(prompt) - num_sampled
        self._sampling = sampling
        self._said = Counter(prompt[given:])
        self._read = set(prompt[:given])

    @staticmethod
    def is_needed(sampling: Sampling) -> bool:
        return bool(
            sampling.logit_bias
            or sampling.presence_penalty
            or sampling.frequency_penalty
            or sampling.repetition_penalty != 1
        )

    def took(self, token: int) -> None:
        self._said[token] += 1

    def shaped(self, logits: Tensor) -> Tensor:
        """Of one row, in place."""
        how = self._sampling
        if how.logit_bias:
            tokens = torch.tensor(list(how.logit_bias))
            logits[tokens] += torch.tensor(list(how.logit_bias.values()), dtype=logits.dtype)
        if how.repetition_penalty != 1 and (seen := self._read | self._said.keys()):
            tokens = torch.tensor(list(seen))
            found, factor = logits[tokens], how.repetition_penalty
            logits[tokens] = torch.where(found > 0, found / factor, found * factor)
        if self._said:
            tokens = torch.tensor(list(self._said))
            counts = torch.tensor(list(self._said.values()), dtype=logits.dtype)
            logits[tokens] -= how.frequency_penalty * counts + how.presence_penalty
        return logits
