"""What the scheduler is told of an action, and how wrong it is."""

from math import log
from random import Random
from statistics import mean, pstdev

import pytest
from sim_support import an_action, an_elastic_action

from artangram.core.errors import BadInput
from artangram.core.scheduling.action import MOST_WORK_S
from artangram.core.scheduling.speedup import DEFAULT
from artangram.sim.beliefs import ExactBeliefs, LearnedBeliefs, NoisyBeliefs, beliefs

WIDE = an_elastic_action(8.0, 4, serial=0.33)


def test_exact_tells_the_truth():
    assert beliefs("exact", 0).needs(WIDE) == WIDE.needs
    assert beliefs("exact", 0).work_s(WIDE) == 8.0


def test_learned_tells_nothing_but_the_amounts():
    told = beliefs("learned", 0)
    assert told.work_s(WIDE) is None
    needs = told.needs(WIDE)
    assert needs.speedup is None
    assert (needs.amounts, needs.elastic) == (WIDE.needs.amounts, WIDE.needs.elastic)


def test_noisy_tells_one_wrong_curve_for_everything():
    needs = beliefs("noisy:1.0", 0).needs(WIDE)
    assert needs.speedup == DEFAULT != WIDE.needs.speedup
    assert needs.amounts == WIDE.needs.amounts


def test_a_rigid_action_needs_what_it_needs():
    rigid = an_action(1.0)
    for told in (ExactBeliefs(), LearnedBeliefs(), NoisyBeliefs(1.0, Random(0))):
        assert told.needs(rigid) is rigid.needs


def test_noise_is_lognormal_around_the_truth():
    told = beliefs("noisy:0.5", 7)
    errors = [log(told.work_s(WIDE) / 8.0) for _ in range(4000)]
    assert mean(errors) == pytest.approx(0.0, abs=0.03)
    assert pstdev(errors) == pytest.approx(0.5, rel=0.05)


def test_wild_noise_is_still_a_time_that_a_scheduler_takes():
    told = beliefs("noisy:10", 0)
    guesses = [told.work_s(WIDE) for _ in range(400)]
    assert max(guesses) == MOST_WORK_S
    assert min(guesses) < 1e-6


def test_no_noise_is_the_truth():
    assert beliefs("noisy:0", 1).work_s(WIDE) == pytest.approx(8.0)


def test_the_same_seed_tells_the_same():
    first, again, other = (beliefs("noisy", seed) for seed in (3, 3, 4))
    told = [first.work_s(WIDE) for _ in range(5)]
    assert told == [again.work_s(WIDE) for _ in range(5)]
    assert told != [other.work_s(WIDE) for _ in range(5)]


def test_equal_needs_are_told_as_one_object():
    twin = an_elastic_action(1.0, 4, serial=0.33)
    for name in ("noisy", "learned"):
        told = beliefs(name, 0)
        assert told.needs(WIDE) is told.needs(twin)
    assert told.needs(an_elastic_action(1.0, 5, serial=0.33)) is not told.needs(twin)


UNKNOWN = ["", "exactly", "exact:1", "learned:1", "noisy:", "noisy:x", "noisy:-1", "noisy:nan"]


@pytest.mark.parametrize("name", [*UNKNOWN, "noisy:inf"])
def test_an_unknown_belief_is_refused(name):
    with pytest.raises(BadInput, match="estimates"):
        beliefs(name, 0)
