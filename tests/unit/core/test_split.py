"""Which requests are split between two replicas, and which replicas these are."""

import pytest

from artangram.core.affinity import ANY, Candidate, Habits, Observed, Rates, Speeds, Wanted, Work
from artangram.core.errors import BadInput
from artangram.core.split import AutoSplit, Half, Halves, Splits, Splitter, splits_of

READS = Rates(prefill_per_s=10_000, decode_per_s=20)
WRITES = Rates(prefill_per_s=1000, decode_per_s=100)
SPEEDS = {"compute": READS, "bandwidth": WRITES}
IDLE = Work(0, 0)
DECLARED = {"default": {"prefill": "compute", "decode": "bandwidth"}}


def a_splitter(value: str | dict = "auto") -> Splitter:
    return Splitter(splits_of(value), speeds=Speeds(SPEEDS), habits=Habits())


def a_half(name: str, hardware: str, *, busy: Work = IDLE, holds: int = 0, kind: str = "k") -> Half:
    one = Candidate(name=name, hardware=hardware, outstanding=busy, holds=holds)
    return Half(one, kind)


def wanted(prompt: int = 10_000, most: int = 100) -> Wanted:
    return Wanted(task="swe", prompt_tokens=prompt, most_tokens=most)


BOTH = [a_half("c", "compute"), a_half("b", "bandwidth")]


def test_without_a_rule_nothing_is_split():
    assert a_splitter({"other": "auto"}).reading(wanted(), BOTH) is None


def test_a_declared_task_is_read_by_the_replica_of_its_class_that_is_soonest_through():
    others = [a_half("busy", "compute", busy=Work(9000, 0)), a_half("knows", "compute", holds=4000)]
    reading = a_splitter(DECLARED).reading(wanted(), [*BOTH, *others])
    assert (reading.reader.replica, reading.decode) == ("knows", "bandwidth")
    assert reading.reader.work == Work(6000, 0)


@pytest.mark.parametrize(
    "halves",
    [
        [],
        BOTH[:1],
        BOTH[1:],
        [a_half("c", "compute", kind=""), BOTH[1]],
        [a_half("c", "compute", kind="other"), BOTH[1]],
    ],
    ids=["none", "no writer", "no reader", "hands nothing over", "of another kind"],
)
def test_without_two_of_a_kind_one_replica_does_it_all(halves: list[Half]):
    assert a_splitter(DECLARED).reading(wanted(), halves) is None
    assert a_splitter("auto").reading(wanted(), halves) is None


def test_one_replica_is_never_both_halves():
    same = {"default": {"prefill": "compute", "decode": "compute"}}
    assert a_splitter(same).reading(wanted(), BOTH) is None
    two = [a_half("c", "compute"), a_half("d", "compute", busy=Work(1, 1))]
    assert a_splitter(same).reading(wanted(), two).reader.replica == "c"


def test_a_prompt_of_one_token_is_not_split():
    assert a_splitter(DECLARED).reading(wanted(prompt=1), BOTH) is None


def test_auto_splits_where_it_is_clearly_sooner():
    # Read and written: 1 + 5 s on one, 10 + 1 s on the other, 1 + 0.03 + 1 s on both.
    assert a_splitter().reading(wanted(), BOTH).reader.replica == "c"
    # 0.1 + 5 s and 1 + 1 s against 0.1 + 0.003 + 1 s.
    assert a_splitter().reading(wanted(prompt=1000), BOTH) is not None
    # 0.1 + 1 s on the second by itself: nothing to gain.
    assert a_splitter().reading(wanted(prompt=100), BOTH) is None


def test_auto_knows_what_the_writer_has_read_before():
    knows = a_half("b", "bandwidth", holds=9990)
    assert a_splitter().reading(wanted(), [BOTH[0], knows]) is None


def test_auto_counts_the_move_as_it_was_seen():
    splitter = a_splitter()
    splitter.learn(tokens=0, seconds=100.0)
    assert splitter.reading(wanted(), BOTH) is not None
    splitter.learn(tokens=10_000, seconds=4.0)  # Now 1 + 4 + 1 s against 1 + 5 s.
    assert splitter.move_token_s == pytest.approx(4e-4)
    assert splitter.reading(wanted(), BOTH) is None


def test_auto_counts_who_waits():
    busy = a_half("c", "compute", busy=Work(100_000, 0))
    assert a_splitter().reading(wanted(), [busy, BOTH[1]]) is None


def test_auto_counts_those_whose_answers_stand_still_meanwhile():
    # Ten answers would stand still for 0.1 s while the second reads.
    writes = a_half("b", "bandwidth", busy=Work(0, 1280))
    assert a_splitter().reading(wanted(prompt=100), [BOTH[0], writes]).reader.replica == "c"
    reads = a_half("c", "compute", busy=Work(0, 128_000))
    other = a_half("d", "compute", busy=Work(300_000, 0))
    assert a_splitter(DECLARED).reading(wanted(), [reads, other, BOTH[1]]).reader.replica == "d"


def test_an_answer_is_as_long_as_the_tasks_answers_are():
    splitter = a_splitter()
    habits = Habits()
    habits.learn(Observed(task="swe", hardware="compute", work=Work(10_000, 1)))
    short = Splitter(Splits(tasks={"swe": AutoSplit()}), speeds=splitter.speeds, habits=habits)
    # One token: 1 + 0.05 s on one, 1 + 0.03 + 0.01 s on both.
    assert short.reading(wanted(), BOTH) is None
    assert splitter.reading(wanted(), BOTH) is not None


def test_the_writer_is_the_one_done_first_of_its_class():
    candidates = [
        Candidate(name="c", hardware="compute", outstanding=IDLE, holds=10_000),
        Candidate(name="far", hardware="bandwidth", outstanding=IDLE),
        Candidate(name="takes", hardware="bandwidth", outstanding=Work(50, 0), holds=9999),
    ]
    choice = a_splitter(DECLARED).writer(wanted(), candidates, decode="bandwidth")
    assert (choice.replica, choice.instead_of, choice.work) == ("takes", "", Work(1, 100))


def test_any_class_writes_rather_than_none():
    splitter = a_splitter(DECLARED)
    (one,) = [Candidate(name="c", hardware="compute", outstanding=IDLE, holds=10_000)]
    choice = splitter.writer(wanted(), [one], decode="bandwidth")
    assert (choice.replica, choice.instead_of) == ("c", "bandwidth")
    assert splitter.writer(wanted(), [one], decode=ANY).instead_of == ""
    assert splitter.writer(wanted(), [], decode="bandwidth") is None


def test_a_config_says_how_each_task_is_split():
    splits = splits_of({"swe": {"prefill": "compute", "decode": "bandwidth"}, "math": "auto"})
    assert splits.rule("swe") == Halves(prefill="compute", decode="bandwidth")
    assert splits.rule("math") == AutoSplit()
    assert splits.rule("game") is None
    assert splits_of("auto").rule("game") == AutoSplit()


@pytest.mark.parametrize(
    "value",
    ["always", {"swe": "never"}, {"swe": {"prefill": "compute"}}, {"swe": None}]
    + [{"swe": {"prefill": "compute", "decode": bad}} for bad in ("", 3, None)],
)
def test_a_config_that_says_something_else_is_refused(value):
    with pytest.raises(BadInput, match="write auto, or name two hardware classes"):
        splits_of(value)
