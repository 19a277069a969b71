"""What a Llama-style model looks like, as a record and as Hugging Face's `config.json`.

A `head_dim` of 32 is the smallest that vLLM serves on CPUs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput

FILE_NAME = "config.json"


class NotOurs(BadInput):
    """A model that we do not compute ourselves."""


class ModelConfig(Struct, frozen=True, kw_only=True):
    """The default is about 0.1 million parameters: minutes of training on one core."""

    vocab_size: int
    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 2
    num_kv_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 160
    max_context: int = 256
    """Positions the model knows; a prompt and its answer fit in."""
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6
    tied_embeddings: bool = True
    eos_id: int | None = None

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise BadInput("num_kv_heads", "does not divide num_heads", "choose a divisor")
        if self.head_dim % 2:
            raise BadInput("head_dim", "is odd, and positions turn pairs", "choose an even one")

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim


def save_config(config: ModelConfig, directory: Path) -> None:
    """Write `config.json`, which vLLM and transformers read too."""
    content = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_context,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_embeddings,
        "eos_token_id": config.eos_id,
        "bos_token_id": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float32",
    }
    (directory / FILE_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(content)))


def load_config(directory: Path) -> ModelConfig:
    """Read `config.json`. Raises `NotOurs` for a model of another kind, else `BadInput`."""
    with _content(directory) as found:
        _refuse_what_we_are_not(found)
        return _config(found)


def context_of(directory: Path) -> int:
    """How many positions the model there knows, whatever kind it is. Raises `BadInput`."""
    with _content(directory) as found:
        return int(found["max_position_embeddings"])


@contextmanager
def _content(directory: Path) -> Iterator[dict[str, Any]]:
    path = directory / FILE_NAME
    try:
        yield msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(str(path), str(error), "name the directory of a saved model") from error
    except KeyError as error:
        raise BadInput(str(path), f"has no {error}", "save the model again") from error


def _config(found: dict[str, Any]) -> ModelConfig:
    heads = found["num_attention_heads"]
    eos = found.get("eos_token_id")
    return ModelConfig(
        vocab_size=found["vocab_size"],
        hidden_size=found["hidden_size"],
        num_layers=found["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=found.get("num_key_value_heads") or heads,
        head_dim=found.get("head_dim") or found["hidden_size"] // heads,
        intermediate_size=found["intermediate_size"],
        max_context=found["max_position_embeddings"],
        rope_theta=_rope(found).get("rope_theta", found.get("rope_theta", 10000.0)),
        norm_eps=found.get("rms_norm_eps", 1e-6),
        tied_embeddings=found.get("tie_word_embeddings", False),
        eos_id=eos[0] if isinstance(eos, list) else eos,
    )


def _rope(found: dict[str, Any]) -> dict[str, Any]:
    """How positions are encoded, by the name of older or newer files."""
    return found.get("rope_parameters") or found.get("rope_scaling") or {}


def _refuse_what_we_are_not(found: dict[str, Any]) -> None:
    if found.get("model_type") != "llama":
        fix = "load it with artangram.models.huggingface"
        raise NotOurs("model_type", f"{found.get('model_type')!r} is not 'llama'", fix)
    kind = _rope(found).get("rope_type", _rope(found).get("type", "default"))
    for field, is_ours in {
        "rope_type": kind == "default",
        "hidden_act": found.get("hidden_act", "silu") == "silu",
        "attention_bias": not found.get("attention_bias"),
        "mlp_bias": not found.get("mlp_bias"),
    }.items():
        if not is_ours:
            fix = "load it with artangram.models.huggingface"
            raise NotOurs(field, "is one we do not compute", fix)
