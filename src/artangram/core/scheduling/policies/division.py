"""How the cores of a node are divided among the elastic actions that run there.

Each has its least amount, and every further core goes where it adds most speed. Speeds grow less
and less with cores, so those that scale alike get alike, and none has cores to waste while another
one is short of them. Which of them is expected to end sooner decides who runs, not how wide: with
what is known of durations, a core given to the first at a quarter of its worth is lost.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from artangram.core.scheduling.policies.width import Widths


def divided(widths: Sequence[Widths], free: int) -> list[int]:
    """Sizes of all, their least amounts and `free` cores more, or as many of these as they use."""
    sizes = [each.least for each in widths]
    if free <= 0:
        return sizes
    heap = [(-each.gains[0][1], index, 0) for index, each in enumerate(widths) if each.gains]
    heapify(heap)
    while heap:
        _, index, step = heap[0]
        gains = widths[index].gains
        wanted = gains[step][0] - sizes[index]
        if wanted >= free:
            sizes[index] += free
            break
        sizes[index] += wanted
        free -= wanted
        step += 1
        if step < len(gains):
            heapreplace(heap, (-gains[step][1], index, step))
        else:
            heappop(heap)
    return sizes
