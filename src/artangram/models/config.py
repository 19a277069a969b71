"""What a Llama-style model looks like, as a record and as Hugging Face's `config.json`.

A `head_dim` of 32 is the smallest that vLLM serves on CPUs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

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
        return _config(msgspec.convert(found, _LlamaFile))


def context_of(directory: Path) -> int:
    """How many positions the model there knows, whatever kind it is. Raises `BadInput`."""
    with _content(directory) as found:
        return msgspec.convert(found, _Context).max_position_embeddings


_Size = Annotated[int, Meta(ge=1)]


class _Context(Struct):
    max_position_embeddings: _Size


class _Rope(Struct):
    """How positions are encoded; `type` is the older word."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None


class _Architecture(Struct):
    """What has to be as `Llama` computes it."""

    hidden_act: str = "silu"
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    rope_parameters: _Rope | None = None
    rope_scaling: _Rope | None = None
    """By its older name."""

    @property
    def rope(self) -> _Rope:
        return self.rope_parameters or self.rope_scaling or _Rope()


class _LlamaFile(_Architecture, kw_only=True):
    """A Llama's file, as far as it matters."""

    vocab_size: _Size
    hidden_size: _Size
    num_hidden_layers: _Size
    num_attention_heads: _Size
    intermediate_size: _Size
    max_position_embeddings: _Size
    num_key_value_heads: _Size | None = None
    head_dim: _Size | None = None
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    eos_token_id: int | list[int] | None = None


@contextmanager
def _content(directory: Path) -> Iterator[dict[str, Any]]:
    path = directory / FILE_NAME
    try:
        yield msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(str(path), str(error), "name the directory of a saved model") from error


def _config(found: _LlamaFile) -> ModelConfig:
    heads, eos = found.num_attention_heads, found.eos_token_id
    return ModelConfig(
        vocab_size=found.vocab_size,
        hidden_size=found.hidden_size,
        num_layers=found.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=found.num_key_value_heads or heads,
        head_dim=found.head_dim or found.hidden_size // heads,
        intermediate_size=found.intermediate_size,
        max_context=found.max_position_embeddings,
        rope_theta=found.rope.rope_theta or found.rope_theta,
        norm_eps=found.rms_norm_eps,
        tied_embeddings=found.tie_word_embeddings,
        eos_id=next(iter(eos), None) if isinstance(eos, list) else eos,
    )


def _refuse_what_we_are_not(found: dict[str, Any]) -> None:
    fix = "load it with artangram.models.huggingface"
    if found.get("model_type") != "llama":
        raise NotOurs("model_type", f"{found.get('model_type')!r} is not 'llama'", fix)
    kind = msgspec.convert(found, _Architecture)
    for field, is_ours in {
        "rope_type": (kind.rope.rope_type or kind.rope.type or "default") == "default",
        "hidden_act": kind.hidden_act == "silu",
        "attention_bias": not kind.attention_bias,
        "mlp_bias": not kind.mlp_bias,
    }.items():
        if not is_ours:
            raise NotOurs(field, "is one we do not compute", fix)
