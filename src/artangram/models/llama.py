"""A Llama-style causal model in plain torch: RMS norms, rotary positions, SwiGLU, grouped heads.

- It computes what `LlamaForCausalLM` computes; `tensors` and `assign` speak in its names.
- Query, key and value are one matrix, gate and up another: fewer and larger products.
- The same seed makes the same weights.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from artangram.core.errors import BadInput
from artangram.models.causal import refuse_unlike
from artangram.models.config import ModelConfig
from artangram.models.packed import Packed
from artangram.models.rotary import turned, turns
from artangram.models.slots import LlamaSlots

INIT_STD = 0.02


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self._eps)


class Block(nn.Module):
    """One layer. Attention itself is the caller's: it depends on where keys are kept."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        self._parts = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self._head_dim = config.head_dim
        self.input_norm = Norm(size, config.norm_eps)
        self.qkv = nn.Linear(size, config.query_size + 2 * config.kv_size, bias=False)
        self.output = nn.Linear(config.query_size, size, bias=False)
        self.inner_norm = Norm(size, config.norm_eps)
        self.gate_up = nn.Linear(size, 2 * inner, bias=False)
        self.down = nn.Linear(inner, size, bias=False)

    def heads(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, `[..., heads, head_dim]`, at their positions."""
        every = self.qkv(self.input_norm(x)).unflatten(-1, (-1, self._head_dim))
        queries, keys, values = every.split(self._parts, dim=-2)
        return turned(queries, cos, sin), turned(keys, cos, sin), values

    def after(self, x: Tensor, attended: Tensor) -> Tensor:
        """The rest of the layer, after attention."""
        x = x + self.output(attended.flatten(-2))
        gate, up = self.gate_up(self.inner_norm(x)).chunk(2, dim=-1)
        added: Tensor = self.down(functional.silu(gate) * up)
        return x + added


class Llama(nn.Module):
    """See `causal.CausalModel`."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = Norm(config.hidden_size, config.norm_eps)
        if not config.tied_embeddings:
            self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        cos, sin = turns(config.max_context, config.head_dim, theta=config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise(torch.Generator().manual_seed(seed))

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_context(self) -> int:
        return self.config.max_context

    def layers(self) -> Iterator[Block]:
        for block in self.blocks:
            assert isinstance(block, Block)
            yield block

    def hidden(self, packed: Packed) -> Tensor:
        if packed.width > self.max_context:
            fix = f"keep sequences within {self.max_context} tokens"
            raise BadInput("sequences", f"one has {packed.width} tokens", fix)
        x: Tensor = self.embedding(packed.token_ids)
        cos, sin = self.cos[packed.positions].unsqueeze(1), self.sin[packed.positions].unsqueeze(1)
        for block in self.layers():
            heads = block.heads(x, cos, sin)
            query, key, value = (packed.rectangle(part).transpose(1, 2) for part in heads)
            # Zeros behind a sequence come after all its tokens: causality hides them.
            attended = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=self._is_grouped
            )
            x = block.after(x, packed.row(attended.transpose(1, 2)))
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(self.norm(hidden), self._head_weight)

    def slots(self, num_slots: int, max_context: int) -> LlamaSlots:
        return LlamaSlots(self, num_slots, max_context=max_context)

    def tensors(self) -> dict[str, Tensor]:
        """Views on the weights by their names in `LlamaForCausalLM`."""
        found = {"model.embed_tokens.weight": self.embedding.weight.detach()}
        for number, block in enumerate(self.layers()):
            for name, tensor in self._block_tensors(block).items():
                found[f"model.layers.{number}.{name}.weight"] = tensor
        found["model.norm.weight"] = self.norm.weight.detach()
        if not self.config.tied_embeddings:
            found["lm_head.weight"] = self.head.weight.detach()
        return found

    def assign(self, tensors: Mapping[str, Tensor]) -> None:
        own = self.tensors()
        given = dict(tensors)
        if self.config.tied_embeddings:
            given.pop("lm_head.weight", None)  # Some files hold the shared matrix twice.
        refuse_unlike(own, given)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(given[name])

    @property
    def _is_grouped(self) -> bool:
        return self.config.num_heads != self.config.num_kv_heads

    @property
    def _head_weight(self) -> Tensor:
        return self.embedding.weight if self.config.tied_embeddings else self.head.weight

    def _block_tensors(self, block: Block) -> dict[str, Tensor]:
        config = self.config
        parts = [config.query_size, config.kv_size, config.kv_size]
        query, key, value = torch.split(block.qkv.weight.detach(), parts)
        gate, up = block.gate_up.weight.detach().chunk(2)
        return {
            "input_layernorm": block.input_norm.weight.detach(),
            "self_attn.q_proj": query,
            "self_attn.k_proj": key,
            "self_attn.v_proj": value,
            "self_attn.o_proj": block.output.weight.detach(),
            "post_attention_layernorm": block.inner_norm.weight.detach(),
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": block.down.weight.detach(),
        }

    def _initialise(self, generator: torch.Generator) -> None:
        # What is added to the stream is smaller, so that depth does not make it grow.
        added = INIT_STD / math.sqrt(2 * self.config.num_layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                std = added if name.endswith(("output.weight", "down.weight")) else INIT_STD
                nn.init.normal_(parameter, std=std, generator=generator)
