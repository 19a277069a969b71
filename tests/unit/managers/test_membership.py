"""Nodes are given up never too early, and never come back from that."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from artangram.core.ids import NodeId
from artangram.managers.membership import (
    MOST_REMEMBERED,
    Admitted,
    Membership,
    MemberState,
    Rejected,
    Resumed,
)

A = NodeId("a")
FENCE_S, MARGIN_S = 30.0, 5.0


def a_membership() -> Membership:
    return Membership(fence_s=FENCE_S, margin_s=MARGIN_S)


def test_a_node_that_returns_in_time_loses_nothing():
    members = a_membership()
    assert members.greet(A, "m", "1") == Admitted()
    assert members.dropped(A, "1", now=10.0)
    assert members.take_lost(44.9) == []
    assert members.greet(A, "m", "1") == Resumed()
    assert members.next_at() is None
    assert members.take_lost(100.0) == []


def test_a_node_is_lost_a_margin_after_its_fence():
    members = a_membership()
    members.greet(A, "m", "1")
    members.dropped(A, "1", now=10.0)
    assert members.next_at() == 45.0
    assert members.take_lost(45.0) == [A]
    assert members.state(A) is None
    assert isinstance(members.greet(A, "m", "1"), Rejected)
    assert members.greet(A, "m", "2") == Admitted()


def test_a_new_incarnation_of_a_machine_replaces_the_one_before():
    members = a_membership()
    members.greet(A, "m", "1")
    assert members.greet(A, "m", "2") == Admitted(replaces="1")
    assert isinstance(members.greet(A, "m", "1"), Rejected)
    assert not members.dropped(A, "1", now=0.0), "a link of the one before says nothing"


def test_a_name_belongs_to_one_machine():
    members = a_membership()
    members.greet(A, "m", "1")
    assert isinstance(members.greet(A, "other", "2"), Rejected)
    assert isinstance(members.greet(A, "other", "1"), Rejected)
    assert members.incarnation(A) == "1"


def test_a_restarted_orchestrator_waits_for_the_nodes_it_knew():
    members = a_membership()
    members.expect(A, "m", "1", now=100.0)
    assert members.state(A) is MemberState.SUSPECT
    assert members.next_at() == 135.0
    assert members.greet(A, "m", "1") == Resumed()


def test_a_node_that_left_may_come_back_as_a_new_one():
    members = a_membership()
    members.greet(A, "m", "1")
    members.left(A)
    members.left(A)
    assert members.incarnation(A) is None
    assert isinstance(members.greet(A, "m", "1"), Rejected)
    assert members.greet(A, "other", "2") == Admitted()


def test_what_is_remembered_is_bounded():
    members = a_membership()
    for number in range(MOST_REMEMBERED + 2):
        members.greet(A, "m", str(number))
    assert members.greet(NodeId("b"), "m", "0") == Admitted()
    assert repr(members) == "<Membership: 2 nodes, 0 suspect>"


class Fenced(RuleBasedStateMachine):
    """A machine with its own fence, a network that loses anything, and the membership.

    The machine works while `now < fence_at`; each answered heartbeat moves that on from when it was
    sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.members = a_membership()
        self.now = 0.0
        self.incarnation = 0
        self.fence_at = -1.0
        self.is_linked = False
        self.given_up: set[str] = set()

    @property
    def name(self) -> str:
        return str(self.incarnation)

    @initialize()
    def begin(self) -> None:
        self.dial()

    @rule()
    @precondition(lambda self: not self.is_linked)
    def dial(self) -> None:
        if self.now >= self.fence_at:
            self.incarnation += 1  # Fenced: everything here was ended.
        greeting = self.members.greet(A, "m", self.name)
        assert (self.name in self.given_up) == isinstance(greeting, Rejected)
        if not isinstance(greeting, Rejected):
            self.is_linked, self.fence_at = True, self.now + FENCE_S

    @rule(delay_s=st.floats(0.0, 20.0))
    @precondition(lambda self: self.is_linked)
    def beat(self, delay_s: float) -> None:
        """A beat was sent, and its answer came after a delay."""
        sent_at, self.now = self.now, self.now + delay_s
        self._lose()
        if self.is_linked:
            self.fence_at = max(self.fence_at, sent_at + FENCE_S)

    @rule()
    @precondition(lambda self: self.is_linked)
    def drop(self) -> None:
        self.is_linked = False
        assert self.members.dropped(A, self.name, self.now)

    @rule(wait_s=st.floats(0.0, 50.0))
    def wait(self, wait_s: float) -> None:
        self.now += wait_s
        self._lose()

    def _lose(self) -> None:
        working = self.now < self.fence_at
        if self.members.take_lost(self.now):
            assert not working, "the machine still works, and its work is given to others"
            self.given_up.add(self.name)

    @invariant()
    def a_trusted_node_is_linked(self) -> None:
        if self.members.state(A) is MemberState.TRUSTED:
            assert self.is_linked


TestFenced = Fenced.TestCase
