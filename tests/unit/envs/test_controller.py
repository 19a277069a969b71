"""As many busy workers as cores, each test ended once, whoever dies: with made-up workers."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.envs.elastictest.channel import DONE, ENDED, FAILED, LATE, READY, STOPPED, Frame
from artangram.envs.elastictest.controller import MAX_STILLBORN, Options, SuiteController
from artangram.envs.elastictest.work import SuiteDurations, SuiteQueue, Trait, chunked
from artangram.envs.elastictest.workergroup import WorkerDeath, WorkerSlot


class FakeHand(WorkerSlot):
    """Keeps what it is told and does it when the group lets it."""

    def __init__(self, number: int, group: "ScriptedGroup") -> None:
        super().__init__(number, pid=0, channel=None, crash=0)  # type: ignore[arg-type]
        self.inbox: list[int] = []
        self.finishing = False
        self._group = group

    def hand(self, portion):
        self.running.extend(portion.tests)
        self.inbox.extend(portion.tests)
        self._group.busy_at_handing.append(sum(bool(h.running) for h in self._group.hands))

    def finish(self):
        self.finishing = True


class ScriptedGroup:
    """Workers that make one step per look: `fate(hand)` says what happens to each."""

    def __init__(self, fate) -> None:
        self.hands: list[FakeHand] = []
        self.hired = 0
        self.busy_at_handing: list[int] = []
        self._fate = fate

    def hire(self):
        self.hands.append(FakeHand(self.hired, self))
        self.hired += 1
        return self.hands[-1]

    def look(self, _timeout_s):
        return [seen for hand in list(self.hands) for seen in self._step(hand)]

    def _step(self, hand):
        what = self._fate(hand)
        if hand.finishing:
            hand.is_done = what != "dies"
            self.hands.remove(hand)
            return [(hand, Frame(DONE, 0, b"null"))] * hand.is_done + [(hand, WorkerDeath("gone"))]
        if what in ("dies", "stillborn"):
            self.hands.remove(hand)
            hand.is_ready = what == "dies"
            return [(hand, WorkerDeath("signal SIGKILL ended it"))]
        if hand.inbox and what in ("passes", "fails"):
            kind = ENDED if what == "passes" else FAILED
            ready = (hand, Frame(READY, 0, b"null"))
            return [ready, (hand, Frame(kind, hand.inbox.pop(0), b"[]"))]
        return []

    def close(self):
        self.hands.clear()


class Ears:
    """An audience that remembers."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.crashed: list[int] = []
        self.late: list[int] = []
        self.widths: list[int] = []
        self.notes: list[str] = []
        self.wants_to_stop = False

    def on_reports(self, test: int, reports: Any, *, is_over: bool) -> None:
        (self.ended if is_over else self.late).append(test)

    def on_crash(self, test: int, why: str, *, duration_s: float) -> None:
        self.crashed.append(test)

    def on_warning(self, seen: Any) -> None: ...

    def on_stop(self, wish: Any) -> None:
        self.wants_to_stop = True

    def on_note(self, text: str) -> None:
        self.notes.append(text)

    def on_width(self, width: int) -> None:
        self.widths.append(width)


def a_run(num_tests, fate, *, cores=lambda: 2, workers=8, whole=(), each_s=None):
    traits = [Trait("a.py", ("shared",) if n in whole else ()) for n in range(num_tests)]
    known = {} if each_s is None else dict.fromkeys(range(num_tests), each_s)
    beliefs = SuiteDurations(["a.py"] * num_tests, known)
    group, ears = ScriptedGroup(fate), Ears()
    work = SuiteQueue(chunked(traits, beliefs, workers=workers), beliefs)
    controller = SuiteController(
        group, work, audience=ears, cores=cores, options=Options(workers=workers)
    )
    return controller, group, ears


@settings(max_examples=60)
@given(
    num_tests=st.integers(0, 25),
    num_whole=st.integers(0, 25),
    each_s=st.sampled_from([None, 0.005, 1.0]),
    cores=st.lists(st.integers(0, 6), min_size=1),
    choices=st.randoms(use_true_random=False),
)
def test_each_test_ends_once_and_new_work_never_outnumbers_the_cores(
    num_tests, num_whole, each_s, cores, choices
):
    looks = iter(range(10**6))
    width = 0

    def usable():
        nonlocal width
        assert all(busy <= width for busy in group.busy_at_handing)
        group.busy_at_handing.clear()
        width = max(1, min(5, cores[next(looks) // 5 % len(cores)]))
        return width

    fates = ["passes"] * 5 + ["fails", "waits", "dies"]
    controller, group, ears = a_run(
        num_tests,
        lambda _hand: choices.choice(fates),
        cores=usable,
        workers=5,
        whole=range(num_whole),
        each_s=each_s,
    )
    controller.run()
    finished = [t for t in ears.crashed if t not in ears.ended]
    assert Counter(ears.ended + finished) == Counter(range(num_tests))
    assert not group.hands


def test_a_surplus_worker_sleeps_with_what_it_holds_and_goes_on_with_it():
    cores = [2]
    controller, group, ears = a_run(
        12, lambda _hand: "passes", cores=lambda: cores[0], whole=range(6), workers=2
    )
    seen: list[tuple[int, ...]] = []
    look = group.look

    def watched(timeout_s):
        cores[0] = 1 if 2 <= len(seen) < 6 else 2
        seen.append(tuple(h.number for h in group.hands if h.running))
        return look(timeout_s)

    group.look = watched
    controller.run()
    assert seen[:2] == [(0, 1), (0, 1)]
    assert all(len(busy) == 1 for busy in seen[3:6])
    assert (0, 1) in seen[6:]
    assert group.hired == 2
    assert sorted(ears.ended) == list(range(12))
    assert [t for t in ears.ended if t < 6] == list(range(6))
    assert ears.widths == [2, 1, 2]


def test_workers_are_made_only_when_there_are_cores_for_them():
    controller, group, ears = a_run(9, lambda _hand: "passes", cores=lambda: 1)
    controller.run()
    assert (group.hired, len(ears.ended)) == (1, 9)


def test_units_bound_the_workers_whatever_the_cores():
    controller, group, _ = a_run(40, lambda _hand: "passes", cores=lambda: 64, workers=3)
    controller.run()
    assert group.hired == max(group.busy_at_handing) == 3


def test_workers_that_die_before_they_are_ready_cost_no_test_and_end_the_run_at_last():
    controller, group, ears = a_run(4, lambda _hand: "stillborn")
    with pytest.raises(RuntimeError, match="before they run anything"):
        controller.run()
    assert group.hired >= MAX_STILLBORN
    assert ears.crashed == []


def test_one_stillborn_worker_is_replaced():
    controller, _, ears = a_run(4, lambda hand: "passes" if hand.number else "stillborn")
    controller.run()
    assert (sorted(ears.ended), ears.crashed) == ([0, 1, 2, 3], [])


def test_a_machine_without_room_for_a_second_worker_uses_one():
    controller, group, ears = a_run(4, lambda _hand: "passes")
    hire = group.hire

    def full():
        if group.hands:
            raise BlockingIOError("no room")
        return hire()

    group.hire = full
    controller.run()
    assert sorted(ears.ended) == [0, 1, 2, 3]
    assert ears.notes == ["no room for more than 1 workers: no room"]


def test_a_wish_to_stop_ends_the_test_that_runs_and_begins_no_other():
    controller, group, ears = a_run(9, lambda _hand: "passes", cores=lambda: 1, whole=range(9))
    look = group.look

    def wishing(timeout_s):
        hand = group.hands[0]
        stop = [] if hand.finishing else [(hand, Frame(STOPPED, 0, b"{}"))]
        return stop + look(timeout_s)

    group.look = wishing
    controller.run()
    assert ears.ended == [0]


def test_a_late_report_belongs_to_a_test_that_has_ended():
    controller, group, ears = a_run(1, lambda _hand: "passes")
    look = group.look

    def late(timeout_s):
        hand = group.hands[0]
        return ([(hand, Frame(LATE, 0, b"[]"))] if hand.finishing else []) + look(timeout_s)

    group.look = late
    controller.run()
    assert (ears.ended, ears.late) == ([0], [0])


def test_dying_in_the_last_tear_down_is_told_of_the_last_test():
    controller, _, ears = a_run(2, lambda hand: "dies" if hand.finishing else "passes")
    controller.run()
    assert sorted(ears.ended) == [0, 1]
    assert set(ears.crashed) <= {0, 1}
    assert ears.crashed
