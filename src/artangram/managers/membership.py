"""Which agents belong to the cluster, by when they were heard: pure decisions, time is an argument.

- A node whose link breaks or falls silent is *suspect*: it gets no new work, and loses nothing yet.
- The agent of a suspect node ends everything by itself `fence_s` after its last heartbeat that was
  answered. It was sent before its link was dropped here, so `fence_s` and a margin after that
  moment, never earlier, the node is *lost*: by then nothing runs there any more.
- The same incarnation that returns before is trusted again. One that was lost never is: it has to
  end everything and join as a new, empty incarnation.
- A new incarnation of the same machine proves that the one before is gone: agents of one machine
  hold one lock.
"""

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from artangram.core.ids import NodeId

MOST_REMEMBERED = 4096
"""Incarnations that were given up and are still refused by name; older ones are fenced anyway."""


class MemberState(StrEnum):
    """What is known of a node."""

    TRUSTED = "trusted"
    SUSPECT = "suspect"


class Admitted(Struct, frozen=True):
    """Take the agent in as a new node. `replaces` was lost by that."""

    replaces: str | None = None


class Resumed(Struct, frozen=True):
    """The agent is known and kept all it had."""


class Rejected(Struct, frozen=True):
    """The agent may not join; `reason` says what to do."""

    reason: str


Greeting = Admitted | Resumed | Rejected


@dataclass(slots=True)
class _Member:
    machine: str
    incarnation: str
    state: MemberState
    lost_at: float


class Membership:
    """See the module."""

    def __init__(self, *, fence_s: float, margin_s: float) -> None:
        self._fenced_after_s = fence_s + margin_s
        self._members: dict[NodeId, _Member] = {}
        self._given_up: dict[str, None] = {}

    def __repr__(self) -> str:
        suspects = sum(m.state is MemberState.SUSPECT for m in self._members.values())
        return f"<Membership: {len(self._members)} nodes, {suspects} suspect>"

    def state(self, node: NodeId) -> MemberState | None:
        """`None` if no such node belongs to the cluster."""
        member = self._members.get(node)
        return None if member is None else member.state

    def incarnation(self, node: NodeId) -> str | None:
        """Which one belongs to the cluster now."""
        member = self._members.get(node)
        return None if member is None else member.incarnation

    def expect(self, node: NodeId, machine: str, incarnation: str, now: float) -> None:
        """An orchestrator that was restarted: this agent was trusted before, and may come back.

        The orchestrator before answered no heartbeat after its end, which was before `now`.
        """
        lost_at = now + self._fenced_after_s
        self._members[node] = _Member(machine, incarnation, MemberState.SUSPECT, lost_at)

    def greet(self, node: NodeId, machine: str, incarnation: str) -> Greeting:
        """An agent said hello."""
        if incarnation in self._given_up:
            return Rejected(
                f"this incarnation of {node} was given up after it had been silent for too long; "
                "end everything it runs and join as a new one"
            )
        member = self._members.get(node)
        if member is not None and member.incarnation == incarnation:
            if member.machine != machine:
                return Rejected(f"{node} joined from another machine under the same incarnation")
            member.state = MemberState.TRUSTED
            return Resumed()
        if member is not None and member.machine != machine:
            return Rejected(
                f"a node named {node} belongs to the cluster already; start this agent with "
                "another --node"
            )
        replaces = None
        if member is not None:
            replaces = member.incarnation
            self._give_up(member)
        self._members[node] = _Member(machine, incarnation, MemberState.TRUSTED, 0.0)
        return Admitted(replaces)

    def dropped(self, node: NodeId, incarnation: str, now: float) -> bool:
        """Its link was dropped here. Is that news?"""
        member = self._members.get(node)
        if member is None or member.incarnation != incarnation:
            return False
        if member.state is MemberState.SUSPECT:
            return False
        member.state = MemberState.SUSPECT
        member.lost_at = now + self._fenced_after_s
        return True

    def left(self, node: NodeId) -> None:
        """The agent said goodbye, or was told to: nothing of it is left."""
        member = self._members.pop(node, None)
        if member is not None:
            self._give_up(member)

    def take_lost(self, now: float) -> list[NodeId]:
        """The nodes that were silent for so long that nothing runs there any more."""
        lost = [
            node
            for node, member in self._members.items()
            if member.state is MemberState.SUSPECT and member.lost_at <= now
        ]
        for node in lost:
            self._give_up(self._members.pop(node))
        return lost

    def next_at(self) -> float | None:
        """When `take_lost` may have something next."""
        suspects = [m.lost_at for m in self._members.values() if m.state is MemberState.SUSPECT]
        return min(suspects, default=None)

    def _give_up(self, member: _Member) -> None:
        self._given_up[member.incarnation] = None
        if len(self._given_up) > MOST_REMEMBERED:
            del self._given_up[next(iter(self._given_up))]
