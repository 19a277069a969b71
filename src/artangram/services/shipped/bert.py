"""The forward pass of BERT in plain torch, under the names its weights have on disk.

Only what an embedding needs: no dropout, no pooler, one segment.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bert(nn.Module):
    """Token ids to hidden states."""

    def __init__(
        self, *, vocab_size: int, size: int, num_layers: int, num_heads: int, inner: int, most: int
    ) -> None:
        super().__init__()
        self.embeddings = _Embeddings(vocab_size, size, most)
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList(_Layer(size, num_heads, inner) for _ in range(num_layers))}
        )

    def forward(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        """`[texts, tokens, size]`; `mask` is true where there is a token."""
        x: Tensor = self.embeddings(token_ids)
        layers = self.encoder["layer"]
        assert isinstance(layers, nn.ModuleList)
        for layer in layers:
            x = layer(x, mask[:, None, None, :])
        return x


class _Embeddings(nn.Module):
    def __init__(self, vocab_size: int, size: int, most: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, size)
        self.position_embeddings = nn.Embedding(most, size)
        self.token_type_embeddings = nn.Embedding(2, size)
        self.LayerNorm = nn.LayerNorm(size, eps=1e-12)

    def forward(self, token_ids: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: token_ids.shape[1]]
        words: Tensor = self.word_embeddings(token_ids)
        found: Tensor = self.LayerNorm(words + positions + self.token_type_embeddings.weight[0])
        return found


class _Layer(nn.Module):
    def __init__(self, size: int, num_heads: int, inner: int) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": _Attention(size, num_heads), "output": _Output(size, size)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(size, inner)})
        self.output = _Output(inner, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        wide = functional.gelu(self.intermediate["dense"](x))
        found: Tensor = self.output(wide, x)
        return found


class _Attention(nn.Module):
    def __init__(self, size: int, num_heads: int) -> None:
        super().__init__()
        self._num_heads = num_heads
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (self._num_heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return attended.transpose(1, 2).flatten(2)


class _Output(nn.Module):
    """Back to the size of the stream, onto it, and levelled."""

    def __init__(self, inner: int, size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, size)
        self.LayerNorm = nn.LayerNorm(size, eps=1e-12)

    def forward(self, x: Tensor, stream: Tensor) -> Tensor:
        found: Tensor = self.LayerNorm(self.dense(x) + stream)
        return found


def mean_over_tokens(hidden: Tensor, mask: Tensor) -> Tensor:
    """One vector of length one per text."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
    return functional.normalize(mean, dim=-1)


def on_meta(config: dict[str, int]) -> Bert:
    """A model without memory, to put mapped weights into."""
    with torch.device("meta"):
        return Bert(
            vocab_size=config["vocab_size"],
            size=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            inner=config["intermediate_size"],
            most=config["max_position_embeddings"],
        )
