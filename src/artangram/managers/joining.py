"""Keeps this machine in a cluster: dials its orchestrator, again and again, and fences itself.

- While the link is down, what was started goes on and its ends are kept.
- `fence_s` after the last heartbeat that the orchestrator answered, everything here is ended: the
  orchestrator may give the work to others a margin later. Then this machine joins anew, empty.
- An orchestrator that refuses for good (token, fingerprint, version) ends the program with its
  sentence. One that cannot be reached for `patience_s` ends it, too, if that was asked for.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from ssl import SSLContext

from msgspec import Struct

from artangram.core.ids import NodeId
from artangram.link import Link, LinkEnded, LinkRefused, dial_for
from artangram.managers import wire
from artangram.managers.agentprocess import AgentServer
from artangram.managers.local import LocalAgent
from artangram.managers.tls import client_context, pinned

logger = logging.getLogger(__name__)

SILENCE_S = 6.0
"""How long the orchestrator may be silent until another link is tried."""
FENCE_S = 30.0
"""Used until an orchestrator has said its own."""
REDIAL_S = 0.2
REDIAL_MOST_S = 5.0
LOOK_EVERY_S = 0.2
"""How exactly the fence is kept; far below the orchestrator's margin."""


OnJoined = Callable[[tuple[str, int]], None]


class JoinTarget(Struct, frozen=True, kw_only=True):
    """Where the orchestrator is or may be, and how the two know each other."""

    addresses: tuple[tuple[str, int], ...]
    """Host and port; the next one is tried when one does not answer."""
    token: str
    fingerprint: str | None
    """Without one the link is not encrypted: only for this machine itself."""


class MachineIdentity(Struct, frozen=True, kw_only=True):
    """The name and shape of this machine."""

    node: NodeId
    machine: str
    shape: wire.NodeShape


class JoiningAgent:
    """See the module."""

    def __init__(
        self,
        target: JoinTarget,
        identity: MachineIdentity,
        new_agent: Callable[[], Awaitable[LocalAgent]],
        *,
        silence_s: float = SILENCE_S,
        patience_s: float | None = None,
        on_joined: OnJoined = lambda _: None,
    ) -> None:
        """`on_joined` is called with the address of the orchestrator."""
        self._target = target
        self._identity = identity
        self._new_agent = new_agent
        self._silence_s = silence_s
        self._patience_s = patience_s
        self._on_joined = on_joined
        self._over = asyncio.Event()
        self.is_dismissed = False
        """Was this node drained, and let go?"""

    def stop(self) -> None:
        """End everything here, tell the orchestrator, and return from `run`."""
        self._over.set()

    async def run(self) -> None:
        """Until `stop`, or until the orchestrator has drained this node and lets it go.

        Raises `LinkRefused` when the orchestrator refuses for good, `LinkEnded` when it cannot be
        reached for longer than the patience."""
        while not self._over.is_set():
            agent = await self._new_agent()
            life = _Incarnation(agent, self._target, self._identity, self._silence_s)
            try:
                async with asyncio.timeout(self._patience_s) as patience:
                    await life.last(self._over, partial(self._has_joined, patience))
            except TimeoutError:
                if not patience.expired():
                    raise
                problem = f"no orchestrator for {self._patience_s:g} s"
                raise LinkEnded(problem) from None
            finally:
                await life.aclose()
            if life.is_dismissed:
                self.is_dismissed = True
                self._over.set()

    def _has_joined(self, patience: asyncio.Timeout, at: tuple[str, int]) -> None:
        patience.reschedule(None)
        self._on_joined(at)


class _Incarnation:
    """One life of this machine in the cluster: from empty to fenced, told to leave, or stopped."""

    def __init__(
        self,
        agent: LocalAgent,
        target: JoinTarget,
        identity: MachineIdentity,
        silence_s: float,
    ) -> None:
        self._server = AgentServer(agent)
        self._agent = agent
        self._target = target
        self._identity = identity
        self._silence_s = silence_s
        self._fence_s = FENCE_S
        self._address = 0
        """Which of the target's was reached last, or is tried next."""
        self._link: Link[wire.Request] | None = None
        """The latest one; it may have ended."""
        self._confirmed_at: float | None = None
        self._suspended_s = _suspended_s()

    @property
    def is_dismissed(self) -> bool:
        """Was the node drained, and this machine told to leave?"""
        return self._server.is_dismissed

    async def last(self, over: asyncio.Event, on_joined: OnJoined) -> None:
        await self._server.begin()
        ways = [over.wait(), self._server.over.wait(), self._stay(on_joined), self._fenced()]
        tasks = {asyncio.ensure_future(way) for way in ways}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def aclose(self) -> None:
        """End everything that runs here; a goodbye that was asked for is answered after it."""
        await self._agent.aclose()
        await self._server.say_goodbye()

    async def _stay(self, on_joined: OnJoined) -> None:
        """Dial, and dial again whenever the link ends. Returns when it was given up."""
        pause_s = REDIAL_S
        while True:
            try:
                link = await self._dialed()
            except LinkRefused as error:
                if self._confirmed_at is None:
                    raise
                logger.warning("ending everything here: %s", error)
                return
            if link is not None:
                self._link, pause_s = link, REDIAL_S
                on_joined(self._target.addresses[self._address])
                await asyncio.shield(link.closed)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, REDIAL_MOST_S)

    async def _fenced(self) -> None:
        """Return when the fence is reached, whatever dialing does meanwhile."""
        while True:
            if self._is_fenced():
                break
            await asyncio.sleep(LOOK_EVERY_S)
        logger.warning("no orchestrator for %g s: ending everything here", self._fence_s)

    async def _dialed(self) -> Link[wire.Request] | None:
        target, known = self._target, self._identity
        tls: SSLContext | None = None
        verify = None
        if target.fingerprint is not None:
            tls, verify = client_context(), pinned(target.fingerprint)
        hello = wire.JoinHello(
            node=known.node,
            machine=known.machine,
            incarnation=self._agent.incarnation,
            token=target.token,
            shape=known.shape,
        )
        dialing = dial_for(
            target.addresses[self._address],
            wire.agent_terms(self._silence_s),
            self._server.use,
            hello=hello,
            tls=tls,
            verify=verify,
            server_name="artangram" if tls else None,
            patience_s=self._silence_s,
        )
        try:
            link = await dialing
        except (OSError, LinkEnded) as error:
            logger.info("cannot reach the orchestrator: %s", error)
            self._address = (self._address + 1) % len(target.addresses)
            return None
        self._fence_s = link.peer(wire.Welcome).fence_s
        return link

    def _is_fenced(self) -> bool:
        """Time that the machine slept counts: others went on meanwhile."""
        link = self._link
        if link is None:
            return False  # It never joined, so nothing runs here.
        if link.confirmed_at != self._confirmed_at:
            self._confirmed_at, self._suspended_s = link.confirmed_at, _suspended_s()
        slept_s = _suspended_s() - self._suspended_s
        now = asyncio.get_running_loop().time()
        return now - self._confirmed_at + slept_s >= self._fence_s


def _suspended_s() -> float:
    """How long this machine has slept since it was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
