"""Which requests are split between two replicas, and which replicas these are."""

import pytest
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.rollout.affinity import ANY
from artangram.core.rollout.costs import (
    Candidate,
    Costs,
    Habits,
    Observed,
    Rates,
    RoutedRequest,
    Speeds,
    TokenWork,
)
from artangram.core.rollout.split import (
    MOVE_TOKEN_S,
    AutoSplit,
    DecodeChoice,
    PrefillDecision,
    PrefillDecode,
    Splitter,
    splits_of,
)

READS = Rates(prefill_per_s=10_000, decode_per_s=20)
WRITES = Rates(prefill_per_s=1000, decode_per_s=100)
SPEEDS = {"compute": READS, "bandwidth": WRITES}
IDLE = TokenWork(0, 0)
DECLARED = {"default": {"prefill": "compute", "decode": "bandwidth"}}


def a_splitter(value: str | dict = "auto") -> Splitter:
    return Splitter(splits_of(value), costs=Costs(Speeds(SPEEDS), Habits()))


def a_half(
    name: str, hardware: str, *, busy: TokenWork = IDLE, holds: int = 0, kind: str = "k"
) -> DecodeChoice:
    one = Candidate(name=name, hardware=hardware, outstanding=busy, holds=holds)
    return DecodeChoice(one, kind)


def wanted(prompt: int = 10_000, most: int = 100) -> RoutedRequest:
    return RoutedRequest(task="swe", prompt_tokens=prompt, most_tokens=most)


BOTH = [a_half("c", "compute"), a_half("b", "bandwidth")]


def test_without_a_rule_nothing_is_split():
    assert a_splitter({"other": "auto"}).reading(wanted(), BOTH) is None


def test_a_declared_task_is_read_by_the_replica_of_its_class_that_is_soonest_through():
    others = [
        a_half("busy", "compute", busy=TokenWork(9000, 0)),
        a_half("knows", "compute", holds=4000),
    ]
    reading = a_splitter(DECLARED).reading(wanted(), [*BOTH, *others])
    assert (reading.reader.replica, reading.decode) == ("knows", "bandwidth")
    assert reading.reader.work == TokenWork(6000, 0)


@pytest.mark.parametrize(
    "stages",
    [
        [],
        BOTH[:1],
        BOTH[1:],
        [a_half("c", "compute", kind=""), BOTH[1]],
        [a_half("c", "compute", kind="other"), BOTH[1]],
    ],
    ids=["none", "no writer", "no reader", "hands nothing over", "of another kind"],
)
def test_without_two_of_a_kind_one_replica_does_it_all(stages: list[DecodeChoice]):
    assert a_splitter(DECLARED).reading(wanted(), stages) is None
    assert a_splitter("auto").reading(wanted(), stages) is None


def test_one_replica_is_never_both_halves():
    same = {"default": {"prefill": "compute", "decode": "compute"}}
    assert a_splitter(same).reading(wanted(), BOTH) is None
    two = [a_half("c", "compute"), a_half("d", "compute", busy=TokenWork(1, 1))]
    assert a_splitter(same).reading(wanted(), two).reader.replica == "c"


def test_a_prompt_of_one_token_is_not_split():
    assert a_splitter(DECLARED).reading(wanted(prompt=1), BOTH) is None


def busy(turns: int, *, readers: int = 2, writers: int = 2) -> list[DecodeChoice]:
    """Pools with so many turns under way."""
    hardware = ["compute"] * readers + ["bandwidth"] * writers
    stages = [a_half(f"{kind}-{n}", kind) for n, kind in enumerate(hardware)]
    return [structs.replace(stages[0], turns=turns), *stages[1:]]


def asked(
    splitter: Splitter, stages: list[DecodeChoice], *, prompt: int = 10_000
) -> PrefillDecision | None:
    """What becomes of a request after another look at the plan."""
    for _ in range(AutoSplit().look_every - 1):
        splitter.reading(wanted(prompt), stages)
    return splitter.reading(wanted(prompt), stages)


def a_learned_splitter(*, prefill: float = 2000, decode: float = 100) -> Splitter:
    splitter = a_splitter()
    seen = Observed(task="swe", hardware="compute", work=TokenWork(prefill, decode))
    splitter.costs.habits.learn(seen)
    return splitter


def test_auto_splits_what_is_clearly_sooner_that_way():
    reading = asked(a_learned_splitter(), busy(20))
    assert (reading.reader.hardware, reading.decode) == ("compute", "bandwidth")


def test_auto_knows_nothing_before_a_turn_has_ended():
    assert asked(a_splitter(), busy(20)) is None


def test_auto_splits_nothing_where_one_replica_would_read_for_all():
    assert asked(a_learned_splitter(prefill=20_000), busy(20, readers=1, writers=8)) is None


def test_auto_splits_nothing_for_a_small_gain():
    # Hardly anything is read, and the second class writes best by itself.
    assert asked(a_learned_splitter(prefill=1), busy(20)) is None


def test_auto_counts_the_move_as_it_was_seen():
    splitter = a_learned_splitter()
    splitter.learn(tokens=0, seconds=100.0)
    assert splitter.move_token_s == MOVE_TOKEN_S
    splitter.learn(tokens=10_000, seconds=4.0)
    assert splitter.move_token_s == pytest.approx(4e-4)
    assert asked(splitter, busy(20)) is None


def test_auto_stops_when_it_does_not_gain_any_more():
    splitter = a_learned_splitter()
    assert asked(splitter, busy(20)) is not None
    assert splitter.reading(wanted(), busy(20)) is not None
    splitter.learn(tokens=10_000, seconds=20.0)
    assert asked(splitter, busy(20)) is None


def test_auto_splits_nothing_without_two_classes():
    assert asked(a_learned_splitter(), busy(20, writers=0)) is None


def test_a_reader_is_chosen_with_those_whose_answers_stand_still_meanwhile():
    reads = a_half("c", "compute", busy=TokenWork(0, 128_000))
    other = a_half("d", "compute", busy=TokenWork(300_000, 0))
    assert a_splitter(DECLARED).reading(wanted(), [reads, other, BOTH[1]]).reader.replica == "d"


def test_the_writer_is_the_one_done_first_of_its_class():
    candidates = [
        Candidate(name="c", hardware="compute", outstanding=IDLE, holds=10_000),
        Candidate(name="far", hardware="bandwidth", outstanding=IDLE),
        Candidate(name="takes", hardware="bandwidth", outstanding=TokenWork(50, 0), takes=9999),
    ]
    choice = a_splitter(DECLARED).writer(wanted(), candidates, decode="bandwidth")
    assert (choice.replica, choice.instead_of, choice.work) == ("takes", "", TokenWork(1, 100))


def test_any_class_writes_rather_than_none():
    splitter = a_splitter(DECLARED)
    (one,) = [Candidate(name="c", hardware="compute", outstanding=IDLE, holds=10_000)]
    choice = splitter.writer(wanted(), [one], decode="bandwidth")
    assert (choice.replica, choice.instead_of) == ("c", "bandwidth")
    assert splitter.writer(wanted(), [one], decode=ANY).instead_of == ""
    assert splitter.writer(wanted(), [], decode="bandwidth") is None


def test_a_config_says_how_each_task_is_split():
    splits = splits_of({"swe": {"prefill": "compute", "decode": "bandwidth"}, "math": "auto"})
    assert splits.rule("swe") == PrefillDecode(prefill="compute", decode="bandwidth")
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
