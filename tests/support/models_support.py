"""Builders of small models. Importing this imports torch."""

import torch

from artangram.models.config import ModelConfig
from artangram.models.llama import Llama

VOCAB_SIZE = 23

torch.set_num_threads(1)


def a_model(*, seed: int = 0, **fields: int) -> Llama:
    """A model whose weights are large enough for its answers to differ."""
    config = ModelConfig(**({"vocab_size": VOCAB_SIZE} | fields))
    model = Llama(config, seed=seed)
    model.assign({name: tensor * 3 for name, tensor in model.tensors().items()})
    return model


def some_sequences(*lengths: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]
