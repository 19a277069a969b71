"""A trainer's state as whole tensors by the names of the weights: what one backend saved, all read.

All processes call these together. Only the first of several has the whole state afterwards.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError
from torch.nn import Module
from torch.optim import Optimizer

from artangram.core.errors import BadInput

State = dict[str, Any]


def optimiser_state(model: Module, optimiser: Optimizer) -> State:
    """What the optimiser remembers, gathered on the CPU."""
    # Only saving needs it, and it takes a second to import.
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_optimizer_state_dict(model, optimiser, options=options)


def check_optimiser_state(model: Module, state: State) -> None:
    """Raise `BadInput` unless `state` was saved by a model with the same weights."""
    names = {name for name, _ in model.named_parameters()}
    found = state.get("state")
    if not isinstance(found, dict) or (found and set(found) != names):
        fix = "resume with the model that the run began with"
        raise BadInput("optimiser", "is of another model, or of an older release", fix)


def set_optimiser_state(model: Module, optimiser: Optimizer, state: State) -> None:
    """Go on with what `optimiser_state` gathered; every process gives all of it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True)
    set_optimizer_state_dict(model, optimiser, optim_state_dict=state, options=options)


def set_weights(model: Module, weights: dict[str, torch.Tensor]) -> None:
    """Give every process its part of whole weights, by the names of the parameters."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(full_state_dict=True, strict=False)
    set_model_state_dict(model, dict(weights), options=options)


@contextmanager
def plainly_full() -> Iterator[None]:
    """Around writing tensors: a disk without room is an `OSError`, whichever library finds out."""
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        raise OSError(errno.ENOSPC, f"tensors could not be written: {error}") from error
