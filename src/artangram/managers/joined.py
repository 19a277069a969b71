"""A node agent that dialed in, seen from the orchestrator.

- Its link may break and come back as often as it likes: what was told meanwhile is made up for from
  the agent's inventory, asks wait and are asked again, every end is told once.
- It is gone only when `lose` says so: see `membership`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import NoneType
from typing import TypeVar

from msgspec import structs

from artangram.core.ids import ActionId, NodeId
from artangram.link import Link, LinkEnded, LinkFull, LinkUser, PeerFailed
from artangram.managers import wire
from artangram.managers.agent import AgentGone, Listener, NodeInventory, Run, RunId, RunResult
from artangram.managers.remote import RemoteAgent
from artangram.sandbox.errors import SandboxError

T = TypeVar("T")


@dataclass(slots=True)
class _ToldRun:
    """What the agent has to know of a run that has not ended."""

    run: Run | None
    """`None` of a run that was found there."""
    cores: tuple[int, ...] | None = None
    pace: float = 1.0
    is_stopped: bool = False


class JoinedAgent(RemoteAgent):
    """See the module."""

    def __init__(
        self,
        node: NodeId,
        incarnation: str,
        *,
        now: Callable[[], float],
        on_dropped: Callable[["JoinedAgent"], None],
        on_left: Callable[["JoinedAgent"], None] = lambda agent: None,
    ) -> None:
        super().__init__(node, now=now, process=None)
        self._current: Link[wire.Report] | None = None
        self._on_dropped = on_dropped
        self._on_left = on_left
        self.incarnation = incarnation
        self._runs: dict[RunId, _ToldRun] = {}
        #: Ends that the listener has heard and not acknowledged.
        self._heard: set[RunId] = set()
        self._changed = asyncio.Event()
        self._is_attached = False

    def __repr__(self) -> str:
        state = self._gone or ("connected" if self._current is not None else "suspect")
        return f"<JoinedAgent {self.node}: {state}>"

    @property
    def is_connected(self) -> bool:
        return self._current is not None

    def use(self, link: Link[wire.Report]) -> None:
        """The agent has dialed in. `resume` has to follow."""
        before, self._link = self._current, link
        if before is not None:
            before.abort(LinkEnded("the agent has dialed in again"))
        if not self._is_attached:
            self._set_current(link)

    async def resume(self) -> bool:
        """After a break: find out what the agent missed, and tell it. Was there a break?

        Without a listener there was no break: one that attaches learns all of it.
        """
        if not self._is_attached:
            return False
        link, self._found = self._link, []
        found = await link.ask(wire.Attach(), NodeInventory)
        if link is not self._link:
            return False
        self._make_up(link, structs.replace(found, ended=tuple(self._found)))
        self._set_current(link)
        return True

    def _make_up(self, link: Link[wire.Report], found: NodeInventory) -> None:
        for ended in found.ended:
            if ended.run in self._runs:
                self._tell_end(ended)
            elif ended.run not in self._heard:
                link.tell(wire.Acknowledge(ended.run), stream=None)
        running = set(found.running)
        for run in running - set(self._runs):
            link.tell(wire.StopRun(run.action_id), stream=None)
        for run_id, told in self._runs.items():
            stream = self._streams.get(run_id.action_id)
            if run_id not in running and told.run is not None:
                # Nothing that was sent before the break can still arrive: it never did.
                link.tell(wire.StartRun(told.run), stream=told.run.trajectory)
            if told.cores is not None:
                resize = wire.ResizeRun(run_id.action_id, told.cores, told.pace)
                link.tell(resize, stream=stream)
            if told.is_stopped:
                link.tell(wire.StopRun(run_id.action_id), stream=stream)

    def lose(self, reason: str) -> None:
        """Nothing of it is left; the listener hears."""
        if self._gone:
            return
        self._gone = reason
        link, self._current = self._current, None
        if link is not None:
            link.abort(LinkEnded(reason))
        self._changed.set()
        if self._listener is not None:
            self._listener.on_lost(self.node, reason)

    async def attach(self, listener: Listener) -> NodeInventory:
        found = await super().attach(listener)
        self._is_attached = True
        for run in found.running:
            self._runs.setdefault(run, _ToldRun(None))
        for ended in found.ended:
            self._heard.add(ended.run)
        return found

    def start(self, run: Run) -> None:
        self._runs[run.id] = _ToldRun(run)
        super().start(run)

    def resize(self, action_id: ActionId, cores: tuple[int, ...], *, pace: float = 1.0) -> None:
        for told in self._of(action_id):
            told.cores, told.pace = cores, pace
        super().resize(action_id, cores, pace=pace)

    def stop(self, action_id: ActionId) -> None:
        for told in self._of(action_id):
            told.is_stopped = True
        super().stop(action_id)

    def acknowledge(self, run: RunId) -> None:
        self._heard.discard(run)
        super().acknowledge(run)

    async def aclose(self) -> None:
        """Tell the agent to end everything, if it can be reached. It may join again, empty."""
        await self._leave(wire.LeaveAgent())

    async def dismiss(self) -> None:
        """As `aclose`, but the agent exits and does not join again."""
        await self._leave(wire.LeaveAgent(is_dismissed=True))

    async def _leave(self, goodbye: wire.LeaveAgent) -> None:
        self._listener = None
        await self.functions.aclose()
        link = self._current
        if link is not None and not self._gone:
            with suppress(LinkEnded):  # Then it ends everything by itself.
                await link.ask(goodbye, NoneType)
        self.lose("the orchestrator let go of it")
        self._on_left(self)

    async def detach(self) -> None:
        """Leave the agent to itself: it waits for an orchestrator until it fences itself."""
        self._listener = None
        await self.functions.aclose()
        link, self._current = self._current, None
        if link is not None:
            await link.aclose()

    def _of(self, action_id: ActionId) -> list[_ToldRun]:
        return [told for run, told in self._runs.items() if run.action_id == action_id]

    def _set_current(self, link: Link[wire.Report]) -> None:
        self._current = link
        self._changed.set()

    def _tell(self, record: wire.Tell, *, stream: str | None) -> None:
        link = self._current
        if link is None:
            return  # `resume` makes up for it.
        try:
            link.tell(record, stream=stream)
        except LinkFull as error:
            link.abort(LinkEnded(f"the agent does not read what it is told: {error}"))

    def _tell_end(self, ended: RunResult) -> None:
        if self._runs.pop(ended.run, None) is None:
            return  # Heard before.
        self._heard.add(ended.run)
        super()._tell_end(ended)

    async def _ask(
        self, record: wire.Ask | wire.Attach | wire.LeaveAgent, answer: type[T], *, stream: str = ""
    ) -> T:
        """Every ask may be asked again: it says what shall be, not what shall change."""
        while True:
            link = await self._reached()
            try:
                return await link.ask(record, answer, stream=stream)
            except LinkEnded:
                pass  # The agent was told, and hears of the link's end, too.
            except PeerFailed as error:
                raise SandboxError(str(error)) from None

    async def _reached(self) -> Link[wire.Report]:
        while self._current is None:
            if self._gone:
                raise AgentGone(f"{self.node}: {self._gone}")
            self._changed.clear()
            await self._changed.wait()
        return self._current

    def link_ended(self, link: Link[wire.Report]) -> None:
        """For its links. One that ends before it was resumed counts, too."""
        if link is self._link and not self._gone:
            self._current = None
            self._on_dropped(self)


class JoinedLink(LinkUser[wire.Report]):
    """Hears one link of a joined agent. See `link.LinkUser`."""

    def __init__(self, agent: JoinedAgent, link: Link[wire.Report]) -> None:
        self._agent = agent
        self._link = link

    def on_tell(self, record: wire.Report) -> None:
        self._agent.on_tell(record)

    def on_silent(self, silent_s: float) -> None:
        """Answer nothing more: the agent's patience is counted from its last answered beat."""
        self._link.abort(LinkEnded(f"the agent did not answer for {silent_s:.3g} s"))

    def on_end(self, error: LinkEnded) -> None:
        self._agent.link_ended(self._link)
