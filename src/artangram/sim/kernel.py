"""How a kernel shares a node's cores among contending groups: weighted max-min fairness.

Everybody gets the same amount per weight until some want no more; what they leave goes to the rest.
This is what CFS and EEVDF converge to with `cpu.weight` and `cpu.max`.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Contender(NamedTuple):
    weight: int
    wants: int
    """The most it can use, in thousandths of a core."""


def fair_shares(contenders: Sequence[Contender], capacity: float) -> list[float]:
    """The share of each contender, in thousandths of a core."""
    order = sorted(range(len(contenders)), key=lambda i: contenders[i].wants / contenders[i].weight)
    shares = [0.0] * len(contenders)
    weights = float(sum(c.weight for c in contenders))
    for index in order:
        contender = contenders[index]
        shares[index] = min(contender.wants, capacity * contender.weight / weights)
        capacity -= shares[index]
        weights -= contender.weight
    return shares
