"""The forward pass of BERT on tensors as they lie on disk: no modules, nothing to initialise.

Only what an embedding needs: no dropout, no pooler, one segment. A restore maps the weights and is
ready; building a skeleton of modules first would take longer than anything else in it.
"""

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional

EPS = 1e-12


class Bert:
    """Token ids to hidden states."""

    def __init__(self, tensors: Mapping[str, Tensor], *, num_layers: int, num_heads: int) -> None:
        self._tensors = tensors
        self._num_layers = num_layers
        self._num_heads = num_heads

    def __call__(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        """`[texts, tokens, size]`; `mask` is true where there is a token."""
        x = self._embedded(token_ids)
        for number in range(self._num_layers):
            name = f"encoder.layer.{number}"
            attended = self._attended(x, mask[:, None, None, :], f"{name}.attention.self")
            x = self._onto(x, attended, f"{name}.attention.output")
            wide = functional.gelu(self._linear(x, f"{name}.intermediate.dense"))
            x = self._onto(x, wide, f"{name}.output")
        return x

    def _embedded(self, token_ids: Tensor) -> Tensor:
        tables = self._tensors
        words = functional.embedding(token_ids, tables["embeddings.word_embeddings.weight"])
        places = tables["embeddings.position_embeddings.weight"][: token_ids.shape[1]]
        segment = tables["embeddings.token_type_embeddings.weight"][0]
        return self._levelled(words + places + segment, "embeddings")

    def _attended(self, x: Tensor, mask: Tensor, name: str) -> Tensor:
        shape = (*x.shape[:2], self._num_heads, -1)
        query, key, value = (
            self._linear(x, f"{name}.{part}").view(shape).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return attended.transpose(1, 2).flatten(2)

    def _onto(self, stream: Tensor, x: Tensor, name: str) -> Tensor:
        """Back to the size of the stream, added to it, and levelled."""
        return self._levelled(self._linear(x, f"{name}.dense") + stream, name)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        tensors = self._tensors
        return functional.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def _levelled(self, x: Tensor, name: str) -> Tensor:
        weight = self._tensors[f"{name}.LayerNorm.weight"]
        bias = self._tensors[f"{name}.LayerNorm.bias"]
        return functional.layer_norm(x, weight.shape, weight, bias, EPS)


def mean_over_tokens(hidden: Tensor, mask: Tensor) -> Tensor:
    """One vector of length one per text."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
    return functional.normalize(mean, dim=-1)
