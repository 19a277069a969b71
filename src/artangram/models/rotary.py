"""Rotary positions: a pair of numbers is turned by an angle that grows with its position."""

import torch
from torch import Tensor


def turns(max_context: int, head_dim: int, *, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, `[max_context, head_dim]`."""
    speeds = theta ** -(torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(max_context).float(), speeds).repeat(1, 2)
    return angles.cos(), angles.sin()


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` at its positions. A pair is one number of each half of a head."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin
