"""Which tests go where: every test leaves exactly once, fixtures stay together, long ones first."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.envs.elastictest.work import (
    MAX_PORTION,
    PORTION_S,
    SuiteChunk,
    SuiteDurations,
    SuiteQueue,
    Trait,
    chunked,
)


def beliefs(num_tests: int, seconds: dict[int, float] | None = None) -> SuiteDurations:
    return SuiteDurations(["a.py"] * num_tests, seconds)


def lists(chunks: Sequence[SuiteChunk]) -> list[list[int]]:
    return [list(chunk.tests) for chunk in chunks]


def test_tests_that_share_a_fixture_stay_in_one_chunk_in_order():
    module, klass = ("module", "a.py"), ("class", "a.py::A")
    traits = [
        Trait("a.py", (module,)),
        Trait("a.py"),
        Trait("a.py", (klass,)),
        Trait("a.py", (klass, module)),
    ]
    chunks = chunked(traits, beliefs(4), workers=2)
    assert lists([c for c in chunks if c.whole]) == [[0, 2, 3]]
    assert lists([c for c in chunks if not c.whole]) == [[1]]


def test_free_tests_are_sliced_by_what_they_are_believed_to_take():
    known = {0: 5.0, **dict.fromkeys(range(1, 101), 0.1)}
    chunks = chunked([Trait("a.py")] * 101, beliefs(101, known), workers=2)
    costs = [sum(known[t] for t in c.tests) for c in chunks]
    assert costs[0] == 5.0
    assert max(costs[1:]) <= 15.0 / 16 + 1e-9
    assert [t for tests in lists(chunks) for t in tests] == list(range(101))


def test_the_longest_chunk_goes_first_and_equals_go_in_order():
    known = beliefs(4, {0: 1.0, 1: 3.0, 2: 1.0, 3: 2.0})
    work = SuiteQueue([SuiteChunk([t], whole=False) for t in range(4)], known)
    taken = [work.take(()) for _ in range(5)]
    assert lists([c for c in taken if c]) == [[1], [3], [0], [2]]
    assert taken[-1] is None


def test_a_test_of_which_nothing_is_known_goes_alone():
    work, chunk = SuiteQueue([], beliefs(3)), SuiteChunk([0, 1, 2], whole=False)
    assert work.portion(chunk) == ((0,), 1)


def test_short_tests_go_together_up_to_the_limits_and_long_ones_alone():
    known = {t: PORTION_S / 4 for t in range(5)} | {5: 9.0, 6: 9.0}
    work, chunk = SuiteQueue([], beliefs(7, known)), SuiteChunk(range(7), whole=True)
    portions = []
    while chunk.tests:
        portions.append(work.portion(chunk))
    assert portions == [((0, 1, 2, 3), 4), ((4,), 5), ((5,), 6), ((6,), None)]
    tiny = SuiteChunk(range(99), whole=True)
    assert len(SuiteQueue([], beliefs(99, dict.fromkeys(range(99), 0.0))).portion(tiny).tests) == (
        MAX_PORTION
    )


def test_what_was_learned_of_a_file_holds_for_its_other_tests():
    known = beliefs(3)
    assert known.of(2) is None
    known.learn(0, 1.0)
    known.learn(1, 2.0)
    assert known.of(2) == 1.5


def test_without_waiting_chunks_the_longest_held_one_is_halved_by_time():
    known = beliefs(9, {0: 1.0, 1: 1.0, 2: 6.0, 3: 1.0, 4: 1.0, 5: 1.0, 6: 1.0})
    long, short = SuiteChunk([2, 3, 4, 5, 6], whole=False), SuiteChunk([0, 1], whole=False)
    work = SuiteQueue([], known)
    taken = work.take([short, long])
    assert taken is not None
    assert list(taken.tests) == [3, 4, 5, 6]
    assert list(long.tests) == [2]
    assert not taken.whole


def test_shared_fixtures_are_never_divided_and_the_last_test_can_be_taken():
    work = SuiteQueue([], beliefs(3))
    assert work.take([SuiteChunk([0, 1], whole=True), SuiteChunk([], whole=False)]) is None
    last = work.take([SuiteChunk([2], whole=False)])
    assert last is not None
    assert list(last.tests) == [2]


@settings(max_examples=60)
@given(
    shares=st.lists(st.lists(st.integers(0, 5), max_size=2), max_size=25),
    seconds=st.dictionaries(st.integers(0, 24), st.floats(0, 3)),
    choices=st.randoms(use_true_random=False),
)
def test_every_test_leaves_exactly_once_whatever_workers_do(shares, seconds, choices):
    traits = [Trait(f"{n % 3}.py", tuple(s)) for n, s in enumerate(shares)]
    known = SuiteDurations([t.file for t in traits], seconds)
    work = SuiteQueue(chunked(traits, known, workers=3), known)
    held: list[SuiteChunk] = []
    left: Counter[int] = Counter()
    while True:
        held = [c for c in held if c.tests]
        if not held or choices.random() < 0.5:
            chunk = work.take(held)
            if chunk is None and not held:
                break
            held = [c for c in [*held, chunk] if c is not None and c.tests]
        if held:
            chunk = choices.choice(held)
            if choices.random() < 0.2:
                held.remove(chunk)
                work.put_back(chunk)
            else:
                left.update(work.portion(chunk).tests)
    assert left == Counter(range(len(traits)))
