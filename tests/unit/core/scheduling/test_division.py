"""Every core goes where it adds most speed."""

from builders import a_waiting_ticket
from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.core.scheduling.distribution import Distribution, KnownDuration
from artangram.core.scheduling.evidence import lognormal
from artangram.core.scheduling.policies.candidates import Crowd
from artangram.core.scheduling.policies.width import (
    Widths,
    best_workers,
    divided,
    fixed_widths,
    malleable_widths,
)
from artangram.core.scheduling.speedup import Amdahl, Table

EVERY = tuple(range(1, 9))
serials = st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.5]), min_size=1, max_size=5)


def total(widths: list[Widths], sizes: list[int]) -> float:
    return sum(each.speed[size] for each, size in zip(widths, sizes, strict=True))


def best_total(widths: list[Widths], cores: int) -> float:
    """Of all divisions, by trying them."""
    if not widths:
        return 0.0
    first, rest = widths[0], widths[1:]
    spare = cores - sum(each.least for each in rest)
    sizes = [size for size in first.sizes if size <= spare]
    return max(first.speed[size] + best_total(rest, cores - size) for size in sizes)


@settings(max_examples=60, deadline=None)
@given(serials=serials, free=st.integers(0, 20))
def test_no_division_is_faster_in_total(serials, free):
    widths = [fixed_widths(EVERY, Amdahl(serial)) for serial in serials]
    sizes = divided(widths, free)
    assert sum(sizes) == min(len(widths) + free, 8 * len(widths))
    assert total(widths, sizes) >= best_total(widths, len(widths) + free) - 1e-9


def test_cores_that_help_nobody_are_left_over():
    falls = fixed_widths((1, 2, 4), Table(((1, 1.0), (2, 1.5), (4, 0.5))))
    assert divided([falls, falls], 10) == [2, 2]
    assert divided([fixed_widths((4,), Amdahl(0.1))], 4) == [4]


def test_what_all_workers_gain_makes_up_for_the_steps_before():
    widths = malleable_widths((1, 2), Amdahl(0.0), 2, 0.4)
    assert widths.gains == [(2, 1.4)]


class TestWorkers:
    WIDTHS = fixed_widths((1, 2, 4, 8, 16), Amdahl(0.1))

    def workers(self, belief: Distribution | KnownDuration, lasts_s: float, **fields) -> int:
        setting = {"share": 1, "penalty": 0.1, "price": 1.0, "tail": 4.0} | fields
        return best_workers(self.WIDTHS, belief, lasts_s=lasts_s, **setting)

    def test_who_ends_with_the_crowd_needs_no_more_than_its_share(self):
        assert self.workers(KnownDuration(10.0), 1000.0) == 1
        assert self.workers(KnownDuration(10.0), 1000.0, share=4) == 4

    def test_who_outlasts_it_takes_all(self):
        assert self.workers(KnownDuration(100.0), 10.0) == 16

    def test_a_guess_is_weighed(self):
        guess = Distribution(lognormal(20.0, 1.0))
        assert self.workers(guess, 20.0) == 16
        assert self.workers(guess, 2000.0) == 1
        assert self.workers(guess, 100.0, tail=1.0) < self.workers(guess, 100.0, tail=12.0)


def test_a_crowd_lasts_for_what_is_there_and_what_is_still_to_come():
    crowd, one, other = Crowd(), a_waiting_ticket(1, (1,)), a_waiting_ticket(2, (1,))
    assert crowd.lasts_s(4, 3) == 0.0
    one.belief, other.belief = KnownDuration(8.0), KnownDuration(4.0)
    crowd.enter(one, 2)
    crowd.enter(other, 2)
    assert crowd.lasts_s(4, 0) == 3.0
    assert crowd.lasts_s(4, 2) == 4.5
    crowd.leave(one)
    assert crowd.lasts_s(4, 0) == 1.0
