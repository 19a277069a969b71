"""Keys and values that stay, so that appending tokens costs only those tokens.

- Memory is taken once. A slot is one line of it; what lies behind its length is never looked at.
- Each line has one place more than positions, `outside`: what pads a shorter append goes there.
- When most slots of a span are asked for, the whole span is computed in place: copying the keys
  of the chosen ones out costs more than computing some rows in vain.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from artangram.core.errors import BadInput

if TYPE_CHECKING:
    from artangram.models.llama import Llama

SPAN_SHARE = 0.5
"""From this share of asked slots on, a span is computed in place."""


class _Rows(NamedTuple):
    """Tokens to append, one row per line."""

    token_ids: Tensor
    positions: Tensor
    chosen: Tensor
    """The rows that were asked for, in the order they were asked."""
    last: Tensor
    """Where each of those ends."""


class LlamaSlots:
    """See `causal.MovableSlots`."""

    def __init__(self, model: "Llama", num_slots: int, *, max_context: int) -> None:
        config = model.config
        if max_context > config.max_context:
            fix = f"at most {config.max_context}"
            raise BadInput("max_context", "the model knows fewer positions", fix)
        dims = (config.num_layers, num_slots, config.num_kv_heads, max_context + 1, config.head_dim)
        self._keys = torch.zeros(dims)
        self._values = torch.zeros(dims)
        self._model = model
        self._outside = max_context
        self._is_grouped = config.num_heads != config.num_kv_heads
        self.lengths = [0] * num_slots

    def __repr__(self) -> str:
        used = sum(length > 0 for length in self.lengths)
        return f"<LlamaSlots: {used} of {len(self.lengths)} used>"

    @property
    def kind(self) -> str:
        layers, _, heads, _, dim = self._keys.shape
        return f"llama {layers}x{heads}x{dim}"

    def cut(self, slot: int, length: int) -> None:
        self.lengths[slot] = min(length, self.lengths[slot])

    def copied(self, slot: int) -> Tensor:
        length = self.lengths[slot]
        return torch.stack([one[:, slot, :, :length] for one in (self._keys, self._values)])

    def put(self, slot: int, copied: Tensor) -> None:
        length = copied.shape[-2]
        places = self._keys[:, slot, :, :length]
        if length > self._outside or copied.shape != (2, *places.shape):
            fix = "take it from slots of this kind"
            raise BadInput("copied", f"has the size {tuple(copied.shape)}", fix)
        places[:] = copied[0]
        self._values[:, slot, :, :length] = copied[1]
        self.lengths[slot] = length

    @torch.inference_mode()
    def extend(self, slots: Sequence[int], tokens: Sequence[Sequence[int]]) -> Tensor:
        begins = [self.lengths[slot] for slot in slots]
        ends = [begin + len(more) for begin, more in zip(begins, tokens, strict=True)]
        if (seen := max(ends)) > self._outside:
            raise BadInput("tokens", "do not fit", f"at most {self._outside} per slot")
        low, high = min(slots), max(slots) + 1
        if len(slots) >= SPAN_SHARE * (high - low):
            rows = self._rows([slot - low for slot in slots], begins, tokens, num_rows=high - low)
            logits = self._run(rows, slice(low, high), seen=seen)
        else:
            rows = self._rows(range(len(slots)), begins, tokens, num_rows=len(slots))
            logits = self._run(rows, torch.tensor(slots), seen=seen)
        for slot, end in zip(slots, ends, strict=True):
            self.lengths[slot] = end
        return logits

    def _rows(
        self,
        places: Sequence[int],
        begins: Sequence[int],
        tokens: Sequence[Sequence[int]],
        *,
        num_rows: int,
    ) -> _Rows:
        width = max(map(len, tokens))
        token_ids = torch.zeros(num_rows, width, dtype=torch.long)
        positions = torch.full((num_rows, width), self._outside)
        chosen = torch.tensor(places)
        if width == 1:
            token_ids[chosen] = torch.tensor(tokens)
            positions[chosen, 0] = torch.tensor(begins)
            return _Rows(token_ids, positions, chosen, torch.zeros_like(chosen))
        for place, begin, more in zip(places, begins, tokens, strict=True):
            token_ids[place, : len(more)] = torch.tensor(more)
            positions[place, : len(more)] = torch.arange(begin, begin + len(more))
        return _Rows(token_ids, positions, chosen, torch.tensor([len(more) - 1 for more in tokens]))

    def _run(self, rows: _Rows, lines: slice | Tensor, *, seen: int) -> Tensor:
        """The logits after each row's last token; positions beyond `seen` are ignored."""
        model = self._model
        known = rows.positions.clamp(max=model.max_context - 1)
        cos, sin = model.cos[known].unsqueeze(2), model.sin[known].unsqueeze(2)
        mask = (torch.arange(seen) <= rows.positions.unsqueeze(2)).unsqueeze(1)
        numbers = torch.arange(lines.start, lines.stop) if isinstance(lines, slice) else lines
        places = (numbers.unsqueeze(1), slice(None), rows.positions)
        x = model.embedding(rows.token_ids)
        for block, keys, values in zip(model.layers(), self._keys, self._values, strict=True):
            query, keys[places], values[places] = block.heads(x, cos, sin)
            attended = functional.scaled_dot_product_attention(
                query.transpose(1, 2),
                keys[lines, :, :seen],
                values[lines, :, :seen],
                attn_mask=mask,
                enable_gqa=self._is_grouped,
            )
            x = block.after(x, attended.transpose(1, 2))
        return model.logits(x[rows.chosen, rows.last])
