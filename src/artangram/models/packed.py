"""Sequences of different lengths in one row, without padding between them.

Everything but attention sees the row; attention sees a rectangle, one sequence per line, which
`rectangle` and `row` translate. A sequence never sees another one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from artangram.core.errors import BadInput


class Packed:
    """Some sequences of tokens, one after the other."""

    __slots__ = ("_places", "lengths", "positions", "starts", "token_ids", "width")

    def __init__(self, token_ids: Tensor, lengths: Sequence[int]) -> None:
        sizes = torch.tensor(lengths)
        ends = sizes.cumsum(0)
        self.token_ids = token_ids
        self.lengths = tuple(lengths)
        self.starts = ends - sizes
        """Where each sequence begins in the row."""
        self.positions = torch.arange(len(token_ids)) - self.starts.repeat_interleave(sizes)
        self.width = max(lengths)
        lines = torch.arange(len(lengths)).repeat_interleave(sizes)
        self._places = lines * self.width + self.positions

    def __len__(self) -> int:
        return len(self.token_ids)

    def __repr__(self) -> str:
        return f"<Packed: {len(self.lengths)} sequences, {len(self)} tokens>"

    def rectangle(self, row: Tensor) -> Tensor:
        """A row of `[tokens, ...]` as `[sequences, width, ...]`, zeros behind each sequence."""
        flat = row.new_zeros(len(self.lengths) * self.width, *row.shape[1:])
        flat = flat.index_copy(0, self._places, row)
        return flat.view(len(self.lengths), self.width, *row.shape[1:])

    def row(self, rectangle: Tensor) -> Tensor:
        """The way back."""
        return rectangle.flatten(0, 1).index_select(0, self._places)

    def later_tokens(self) -> Tensor:
        """Where the tokens stand that have one before them: those that a model can score."""
        return self.positions.nonzero().squeeze(1)


def pack(sequences: Sequence[Sequence[int]]) -> Packed:
    """Put the sequences into one row."""
    if not sequences or not all(sequences):
        raise BadInput("sequences", "the list is empty, or one of them is", "leave empty ones out")
    flat = [token for sequence in sequences for token in sequence]
    return Packed(torch.tensor(flat), [len(sequence) for sequence in sequences])
