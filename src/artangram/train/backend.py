"""How many processes train together, and what they tell each other.

- Each takes its part of the samples; every loss is divided by the whole batch's share, so that the
  *sum* of their gradients is the gradient one process alone would have had.
- All processes make the same steps in the same order; `ranks` that differ in that would hang. So
  does everything here that they do together: every verb but `part`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, Parameter

from artangram.models.causal import CausalModel
from artangram.train.state import set_weights

T = TypeVar("T")


class TrainBackend(Protocol):
    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files."""
        ...

    def prepare(self, model: object) -> None:
        """Before the optimiser is made: lay the weights out."""
        ...

    def whole(self, model: object) -> AbstractContextManager[None]:
        """While it lasts, every process has all weights."""
        ...

    def assign(self, model: CausalModel, tensors: Mapping[str, Tensor]) -> None:
        """Take over all weights, or raise `BadInput` and take none."""
        ...

    def rounds(self, own: int) -> int:
        """The number of micro-batches that every process makes, given that of this one."""
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

    def most(self, values: Sequence[float]) -> list[float]:
        """The largest of all processes."""
        ...


class _Undivided:
    """Every process that trains has the whole model, and computes at its own pace."""

    def prepare(self, model: object) -> None:
        pass

    def whole(self, model: object) -> AbstractContextManager[None]:
        return nullcontext()

    def assign(self, model: CausalModel, tensors: Mapping[str, Tensor]) -> None:
        model.assign(tensors)

    def rounds(self, own: int) -> int:
        return own


class SingleProcess(_Undivided):
    """One process."""

    is_first = True

    def part(self, samples: Sequence[T]) -> list[T]:
        return list(samples)

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        pass

    def add(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def most(self, values: Sequence[float]) -> list[float]:
        return list(values)


class _Together:
    """The processes of `torch.distributed`'s default group, each with its part of the samples."""

    def __init__(self) -> None:
        self._rank = dist.get_rank()
        self._size = dist.get_world_size()

    @property
    def is_first(self) -> bool:
        return self._rank == 0

    def part(self, samples: Sequence[T]) -> list[T]:
        return list(samples[self._rank :: self._size])

    def add(self, values: Sequence[float]) -> list[float]:
        return _reduced(values, dist.ReduceOp.SUM)

    def most(self, values: Sequence[float]) -> list[float]:
        return _reduced(values, dist.ReduceOp.MAX)


class DataParallel(_Undivided, _Together):
    """A copy of the model in each process."""

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        # One message for all: a small model has many small tensors.
        own = [p for p in parameters if p.requires_grad]
        flat = torch.cat([_gradient(p).flatten() for p in own])
        dist.all_reduce(flat)
        for p, summed in zip(own, torch.split(flat, [p.numel() for p in own]), strict=True):
            p.grad = summed.view_as(p).clone()


class Sharded(_Together):
    """Weights, gradients and the optimiser's state of one model, in parts on the processes (FSDP2).

    All weights of the model are together only while it computes. Each process takes as many rounds
    as the busiest: gathering weights and spreading gradients are done by all at once.
    """

    def prepare(self, model: object) -> None:
        # Training in one process needs none of them, and they take a second to import.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        assert isinstance(model, Module)
        device = next(model.parameters()).device.type
        mesh = init_device_mesh(device, (self._size,))
        # What `hidden` gathered is what `logits` needs next.
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        for verb in ("hidden", "logits"):
            register_fsdp_forward_method(model, verb)

    @contextmanager
    def whole(self, model: object) -> Iterator[None]:
        from torch.distributed.fsdp import FSDPModule

        assert isinstance(model, FSDPModule)
        model.unshard()
        try:
            yield
        finally:
            model.reshard()

    def assign(self, model: CausalModel, tensors: Mapping[str, Tensor]) -> None:
        assert isinstance(model, Module)
        with self.whole(model):
            # It knows its own names; what is written to gathered weights is forgotten with them.
            model.assign(tensors)
            weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        set_weights(model, weights)

    def rounds(self, own: int) -> int:
        return int(self.most([own])[0])

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        # They are means over the processes by now.
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(self._size)


def _reduced(values: Sequence[float], how: dist.ReduceOp.RedOpType) -> list[float]:
    every = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(every, how)
    return [float(value) for value in every]


def whole_number(value: Tensor) -> float:
    """A number that may lie in parts on several processes."""
    whole = getattr(value, "full_tensor", lambda: value)
    return float(whole())


def _gradient(parameter: Parameter) -> Tensor:
    """A process without samples has no gradient: zero."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
