"""A model as a directory that vLLM and transformers read too.

- `config.json`, and the weights in one or more `.safetensors` files under Hugging Face's names.
- A tokenizer may lie beside them; see `load_tokenizer`.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from artangram.core.errors import BadInput
from artangram.models.causal import CausalModel
from artangram.models.config import NotOurs, load_config, save_config
from artangram.models.huggingface import load_huggingface
from artangram.models.llama import Llama

WEIGHTS_NAME = "model.safetensors"


def save_model(model: Llama, directory: Path) -> None:
    """Write the model. The weights come last: a directory without them is not a model."""
    directory.mkdir(parents=True, exist_ok=True)
    save_config(model.config, directory)
    save_weights(model.tensors(), directory / WEIGHTS_NAME)


def load_model(directory: Path) -> Llama:
    """The model of a directory. Raises `BadInput` if the directory has none."""
    model = Llama(load_config(directory))
    model.assign(load_weights(directory))
    return model


def load_causal(directory: Path) -> CausalModel:
    """The model of a directory, by transformers if it is not one of ours."""
    try:
        return load_model(directory)
    except NotOurs:
        return load_huggingface(directory)


def save_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write one file of weights; it appears whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(whole, unfinished, metadata={"format": "pt"})
    unfinished.rename(path)


def load_weights(directory: Path) -> dict[str, Tensor]:
    """All weights of the directory's files, as 32-bit numbers."""
    found: dict[str, Tensor] = {}
    for path in sorted(directory.glob("*.safetensors")):
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise BadInput(str(path), str(error), "publish the weights again") from error
        if again := found.keys() & tensors.keys():
            raise BadInput(str(path), f"repeats {min(again)}", "keep one version per directory")
        found |= tensors
    if not found:
        raise BadInput(str(directory), "holds no .safetensors file", "name a saved model")
    return {name: tensor.to(torch.float32) for name, tensor in found.items()}
