"""A model in the place where it is trained."""

from pathlib import Path

import torch
from torch.nn import Module

from artangram.core.errors import BadInput
from artangram.models.causal import CausalModel
from artangram.models.directory import load_causal


def placed(directory: Path, device: str, *, seed: int, index: int = 0) -> CausalModel:
    """The model of `directory` on cores, or on this GPU. Raises `BadInput`."""
    # The other cores belong to engines and environments.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = load_causal(directory)
    if device == "cuda":
        found = torch.cuda.device_count()
        if index >= found:
            problem = f"there are {found} GPUs, and a process each"
            raise BadInput("train.device", problem, "say fewer processes, or device: cpu")
        assert isinstance(model, Module)
        model.to(torch.device("cuda", index))
    return model
