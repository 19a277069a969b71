"""The contract of a model, for the trainer and for the engine, and how tokens are scored.

- `hidden` and `logits` are the training path: packed sequences, gradients.
- `slots` is the engine's path: keys and values are kept per slot, and tokens are appended.
- Both give the same numbers up to rounding, so sampled tokens get the same logprobs in training.
- `tensors` names the weights as Hugging Face does; `assign` takes the same names.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import Parameter

from artangram.core.errors import BadInput
from artangram.models.packed import Packed


class CacheSlots(Protocol):
    """Kept keys and values, one sequence per slot."""

    @property
    def lengths(self) -> Sequence[int]:
        """How many tokens each slot holds."""
        ...

    def extend(self, slots: Sequence[int], tokens: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens to each slot; the logits after the last one of each."""
        ...

    def cut(self, slot: int, length: int) -> None:
        """Forget what comes after the first `length` tokens of a slot."""
        ...


@runtime_checkable
class MovableSlots(CacheSlots, Protocol):
    """Slots whose keys and values mean the same in other slots of their kind."""

    @property
    def kind(self) -> str: ...

    def copied(self, slot: int) -> Tensor:
        """All that the slot holds; tokens are the last dimension but one."""
        ...

    def put(self, slot: int, copied: Tensor) -> None:
        """Hold this. Raises `BadInput` if it does not fit."""
        ...


class CausalModel(Protocol):
    """See the module."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_context(self) -> int: ...

    def hidden(self, packed: Packed) -> Tensor:
        """The hidden state after each token, `[tokens, size]`."""
        ...

    def logits(self, hidden: Tensor) -> Tensor: ...

    def slots(self, num_slots: int, max_context: int) -> CacheSlots: ...

    def parameters(self) -> Iterator[Parameter]: ...

    def tensors(self) -> dict[str, Tensor]: ...

    def assign(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over all weights, or raise `BadInput` and take none."""
        ...


class Scores(NamedTuple):
    logprobs: Tensor
    entropy: Tensor


def score(
    model: CausalModel, packed: Packed, *, at: Tensor, temperature: float | Tensor = 1.0
) -> Scores:
    """Log-probability of the tokens at these places of the row, given what comes before each.

    `entropy` is that of the distribution each was drawn from; both at `temperature`, which may be
    one of each place. No place may be the first of its sequence: see `Packed.later_tokens`.
    """
    if isinstance(temperature, Tensor):
        temperature = temperature.unsqueeze(1)
    logits = model.logits(model.hidden(packed).index_select(0, at - 1)) / temperature
    every = torch.log_softmax(logits.float(), dim=-1)
    chosen = every.gather(1, packed.token_ids.index_select(0, at).unsqueeze(1)).squeeze(1)
    return Scores(chosen, -(every.exp() * every).sum(dim=-1))


def refuse_unlike(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raise `BadInput` unless `given` can replace the weights `own`, all of them."""
    if missing := sorted(own.keys() - given.keys()):
        raise BadInput(missing[0], f"and {len(missing) - 1} more are missing", "give all weights")
    if strange := sorted(given.keys() - own.keys()):
        raise BadInput(strange[0], "is not a weight of this model", "load the model it belongs to")
    for name, tensor in own.items():
        if given[name].shape != tensor.shape:
            problem = f"has the size {tuple(given[name].shape)}, not {tuple(tensor.shape)}"
            raise BadInput(name, problem, "load the model it belongs to")
        if not given[name].isfinite().all():
            raise BadInput(name, "has values that are not finite", "publish the weights again")
