"""Work conservation where cores are divided anew: idle cores mean that nobody can use them."""

from collections.abc import Callable

from builders import CPU
from scheduler_books import Life, LiveCounts

from artangram.core.ids import NodeId
from artangram.core.scheduling.explain import Explanation


def check_no_idle_cores(books: LiveCounts, explain: Callable[[Life], Explanation]) -> None:
    """Once it was time for a division, no core is idle that somebody here could use."""
    nodes = [node for node, resource in books.nodes.items() if resource == CPU]
    for node in nodes:
        idle = books.free_cores(node)
        here = [life for life in books.running() if _runs_on(life, node)]
        for life in here if idle else ():
            assert life.lease is not None
            if not life.cores:
                _check_preempted(books, life, idle)
                continue
            is_narrow = life.primary == CPU and len(life.cores) < life.lease.workers
            assert not is_narrow, f"{idle} cores are idle, {life} runs on {life.cores}"
        if len(nodes) == 1:  # else nobody outside knows where an action waits
            _check_first(books, explain, node=node, here=here)


def _check_preempted(books: LiveCounts, life: Life, idle: int) -> None:
    """An action is without cores only while it, or one the node may drain for, needs more."""
    others = [other for other in books.lives.values() if not other.cores]
    is_drained = any(min(other.action.needs.of(CPU), default=0) > idle for other in others)
    assert is_drained, f"{idle} cores are idle, {life.action.id} was preempted"


def _check_first(
    books: LiveCounts, explain: Callable[[Life], Explanation], *, node: NodeId, here: list[Life]
) -> None:
    """The first of the queue waits only for cores that cannot be had."""
    room = books.specs[node].cores - sum(_bound_cores(life) for life in here)
    for life in books.waiting():
        said = explain(life).hindrances
        if len(said) == 1 and said[0].resource == CPU and said[0].ahead == 0:
            free = books.free_cores(node) if life.is_elastic else room
            assert said[0].needed > free, f"{life.action.id} could start on {node}: {said}"


def _runs_on(life: Life, node: NodeId) -> bool:
    assert life.lease is not None
    return any(getattr(a, "node", None) == node for a in life.lease.allocations)


def _bound_cores(life: Life) -> int:
    """The cores of `life` that nobody else can have while it runs."""
    is_resized = life.is_elastic and life.primary == CPU
    return min(life.least, len(life.cores)) if is_resized else len(life.cores)
