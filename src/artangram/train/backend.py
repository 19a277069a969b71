"""How many processes train together, and what they tell each other.

- Each takes its part of the samples; every loss is divided by the whole batch's share, so that the
  *sum* of their gradients is the gradient one process alone would have had.
- All processes make the same steps in the same order; `ranks` that differ in that would hang.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch.nn import Parameter

T = TypeVar("T")


class Backend(Protocol):
    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files."""
        ...

    def part(self, samples: Sequence[T]) -> list[T]:
        """What this process trains on."""
        ...

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        """Make every process's gradients the sum of all."""
        ...

    def add(self, values: Sequence[float]) -> list[float]:
        """Sums over all processes."""
        ...


class Alone:
    """One process."""

    is_first = True

    def part(self, samples: Sequence[T]) -> list[T]:
        return list(samples)

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        pass

    def add(self, values: Sequence[float]) -> list[float]:
        return list(values)


class DataParallel:
    """A copy of the model in each process of `torch.distributed`'s default group."""

    def __init__(self) -> None:
        self._rank = dist.get_rank()
        self._size = dist.get_world_size()

    @property
    def is_first(self) -> bool:
        return self._rank == 0

    def part(self, samples: Sequence[T]) -> list[T]:
        return list(samples[self._rank :: self._size])

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        # One message for all: a small model has many small tensors.
        own = [p for p in parameters if p.requires_grad]
        flat = torch.cat([_gradient(p).flatten() for p in own])
        dist.all_reduce(flat)
        for p, summed in zip(own, torch.split(flat, [p.numel() for p in own]), strict=True):
            p.grad = summed.view_as(p).clone()

    def add(self, values: Sequence[float]) -> list[float]:
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(value) for value in total]


def _gradient(parameter: Parameter) -> torch.Tensor:
    """A process without samples has no gradient: zero."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
