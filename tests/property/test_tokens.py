"""Tokens of an API: no call starts beyond a window, none waits that fits, all ends are settled."""

import pytest
from builders import a_cluster, an_action, leases
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples

from artangram.core.ids import ActionId
from artangram.core.scheduling.cluster import CallWindow, QuotaSpec
from artangram.core.scheduling.events import ClockTicked, Finished, Submitted
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.pools.quota import QuotaPool
from artangram.core.scheduling.scheduler import Scheduler
from property.test_planted_bugs import instead, nothing

LIMIT, WINDOW_S = 100, 10.0
API = QuotaSpec(windows=(CallWindow(limit=LIMIT, window_s=WINDOW_S, unit="tokens"),))


class LiveCounts:
    """What one would write down by hand: when how much was charged for which call."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(a_cluster(llm=API), policy("elastic"))
        self.now = 0.0
        self.charged: list[tuple[float, int, str]] = []
        self.running: dict[str, tuple[float, int]] = {}
        self.waiting: dict[str, int] = {}

    def used(self) -> int:
        return sum(amount for at, amount, _ in self.charged if at + WINDOW_S > self.now)

    def call(self, name: str, tokens: int) -> None:
        self.waiting[name] = tokens
        self._tell(Submitted(an_action(name, {"llm": 1}, tokens=tokens)))

    def end(self, number: int, used: int) -> None:
        if not self.running:
            return
        name = sorted(self.running)[number % len(self.running)]
        started_at, taken = self.running.pop(name)
        if used > taken:
            self.charged.append((self.now, used - taken, name))
        else:
            first = (started_at, taken, name)
            self.charged[self.charged.index(first)] = (started_at, used, name)
        self._tell(Finished(ActionId(name), tokens=used))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._tell(ClockTicked())

    def _tell(self, event: object) -> None:
        for lease in leases(self.scheduler.handle(event, self.now)):
            name, tokens = str(lease.action_id), lease.allocations[0].tokens
            before = self.used()
            assert before + min(tokens, LIMIT) <= LIMIT, f"{tokens} start beside {before}"
            assert tokens == self.waiting.pop(name)
            self.charged.append((self.now, tokens, name))
            self.running[name] = (self.now, tokens)
        if self.waiting:
            first, used = next(iter(self.waiting.values())), self.used()
            assert used + min(first, LIMIT) > LIMIT, f"{first} wait beside {used}"


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["call", "call", "end", "wait"]),
        st.integers(0, 9),
        st.sampled_from([0, 10, 30, 60, 120]),
    ),
    max_size=50,
)


def prove_that_tokens_are_settled(moves: list[tuple[str, int, int]]) -> None:
    books = LiveCounts()
    for number, (what, which, tokens) in enumerate(moves):
        if what == "call":
            books.call(f"c{number:02}", tokens)
        elif what == "end":
            books.end(which, tokens)
        else:
            books.wait(float(which))


@examples(200)
@given(moves=MOVES)
def test_no_window_has_more_tokens_than_its_limit_when_a_call_starts(moves):
    prove_that_tokens_are_settled(moves)


def less_only(real):
    """Forget to charge what was used beyond."""
    return lambda self, calls, used, **at: real(self, calls, min(used, calls.tokens), **at)


@pytest.mark.parametrize(
    ("wrong", "complaint"), [(nothing, "wait beside|start beside"), (less_only, "start beside")]
)
def test_books_by_hand_catch_a_settlement_that_is_forgotten(wrong, complaint, monkeypatch):
    instead(QuotaPool, "settle", wrong)(monkeypatch)

    @given(moves=MOVES)
    @examples(1000, is_hunt=True)
    def hunt(moves: list[tuple[str, int, int]]) -> None:
        prove_that_tokens_are_settled(moves)

    with pytest.raises(AssertionError, match=complaint):
        hunt()
