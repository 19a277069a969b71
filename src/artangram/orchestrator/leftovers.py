"""Runs that an earlier orchestrator left on a node without a word in its journal.

- Such a run holds cores that the scheduler believes to be free. Nothing new starts on its node
  until it has ended, or has become the start of its action on the cores of that lease.
- Starts that were decided meanwhile wait here in order, with what was decided about them since.
"""

from artangram.core.ids import NodeId
from artangram.core.scheduling.decisions import Start
from artangram.managers.agent import RunId
from artangram.orchestrator.live import ExecutorVerbs, LiveAction


class Leftovers:
    """See the module."""

    def __init__(self) -> None:
        #: By node; a node without leftovers is not in it.
        self.runs: dict[NodeId, set[RunId]] = {}
        self._waiting: dict[NodeId, list[LiveAction]] = {}

    def __repr__(self) -> str:
        return f"<Leftovers: {self.runs}>"

    def add(self, node: NodeId, run: RunId) -> None:
        self.runs.setdefault(node, set()).add(run)

    def wait(self, node: NodeId, live: LiveAction) -> None:
        """Hold the start of `live` back until `node` has no leftovers any more."""
        assert live.lease is not None, f"{live} has no lease"
        live.held = [Start(live.lease)]
        self._waiting.setdefault(node, []).append(live)

    def settle(self, node: NodeId, run: RunId, executor: ExecutorVerbs) -> None:
        """A run is over, or known by now. After the last one `executor` starts what waited."""
        left = self.runs.get(node)
        if left is None:
            return
        left.discard(run)
        if not left:
            del self.runs[node]
            for live in self._waiting.pop(node, []):
                live.release(executor)

    def lost(self, node: NodeId) -> None:
        """The node is gone, its leftovers with it; what waited for it ends with the node."""
        self.runs.pop(node, None)
        for live in self._waiting.pop(node, []):
            live.held = None
