"""What is learned from actions that ended."""

import pytest
from builders import a_cpu, a_scheduler, an_action

from artangram.core.ids import ActionId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.estimates import (
    CERTAIN,
    RESIDUE,
    UNKNOWN_SPREAD,
    UNKNOWN_WORK_S,
    Estimates,
    residual_s,
)
from artangram.core.scheduling.events import Finished, Submitted
from artangram.core.scheduling.speedup import DEFAULT, Amdahl


def elastic(work_s: float | None = None, speedup: object = None) -> Action:
    needs = {"cpu": {"min": 1, "max": 16}}
    return an_action("a", needs, elastic="cpu", work_s=work_s, speedup=speedup)


def taught(action: Action, *runs: tuple[float, float], times: int = 1) -> Estimates:
    """Estimates after runs of (seconds, units)."""
    estimates = Estimates()
    for _ in range(times):
        for run_s, units in runs:
            believed_s = estimates.work_s(action)
            estimates.observe(action, believed_s=believed_s, run_s=run_s, units=units)
    return estimates


def test_a_kind_never_seen_takes_about_a_second():
    assert Estimates().work_s(an_action("a")) == UNKNOWN_WORK_S


def test_work_is_learned_from_the_same_kind_only():
    estimates = taught(an_action("a", kind="slow"), (20.0, 1.0), times=10)
    assert estimates.work_s(an_action("b", kind="slow")) == pytest.approx(20.0)
    assert estimates.work_s(an_action("b", kind="other")) == UNKNOWN_WORK_S


def test_work_that_nobody_states_is_expected_to_be_the_mean():
    # Sandboxes are ready, or are made: in log space they would look as short as a command.
    estimates = taught(an_action("a"), (0.00002, 1.0), (0.02, 1.0))
    assert estimates.work_s(an_action("b")) == pytest.approx(0.01, rel=0.01)


def test_halves_and_doubles_of_what_is_stated_weigh_the_same():
    action = an_action("a", work_s=10.0)
    estimates = taught(action, (5.0, 1.0), (20.0, 1.0), times=4)
    assert estimates.work_s(action) == pytest.approx(10.0)


def test_kinds_that_callers_make_up_are_forgotten(monkeypatch):
    monkeypatch.setattr("artangram.core.scheduling.estimates.MOST_KINDS", 2)
    estimates = Estimates()
    for kind in ("a", "b", "c"):
        action = an_action("x", kind=kind)
        estimates.observe(action, believed_s=1.0, run_s=5.0, units=1.0)
    believed = [estimates.work_s(an_action("x", kind=kind)) for kind in ("a", "b", "c")]
    assert believed == [UNKNOWN_WORK_S, 5.0, 5.0]


def test_old_runs_are_forgotten():
    action = an_action("a")
    estimates = taught(action, (100.0, 1.0), times=50)
    for _ in range(300):
        estimates.observe(action, believed_s=1.0, run_s=1.0, units=1.0)
    assert estimates.work_s(action) == pytest.approx(1.0, rel=0.01)


def test_a_caller_is_believed_until_its_kind_has_proved_it_wrong():
    action = an_action("a", work_s=10.0)
    assert taught(action, (30.0, 1.0), times=7).work_s(action) == 10.0
    assert taught(action, (30.0, 1.0), times=8).work_s(action) == pytest.approx(30.0)
    assert Estimates().work_s(action) == 10.0


def test_work_is_what_one_unit_would_take():
    action = elastic(speedup={"power": 1.0})
    assert taught(action, (5.0, 4.0)).work_s(action) == pytest.approx(20.0)


def test_a_run_of_no_time_teaches_nothing():
    assert taught(an_action("a"), (0.0, 1.0)).work_s(an_action("a")) == UNKNOWN_WORK_S


def test_a_stated_work_of_zero_does_not_upset_it():
    action = elastic(work_s=0.0)
    assert taught(action, (2.0, 1.0), times=20).work_s(action) == 0.0


@pytest.mark.parametrize("serial", [0.02, 0.3, 0.8])
def test_the_speedup_of_a_kind_is_learned_from_runs_at_several_sizes(serial):
    truth = Amdahl(serial)
    runs = [(10.0 / truth.speed(units), float(units)) for units in (1, 2, 4, 16)]
    learned = taught(elastic(work_s=10.0), *runs, times=40).curve(elastic())
    assert learned.speed(16) == pytest.approx(truth.speed(16), rel=0.2)


def test_a_stated_speedup_is_not_overruled():
    stated = elastic(speedup={"amdahl": 0.5})
    assert taught(stated, (10.0, 8.0), times=50).curve(stated) == Amdahl(0.5)


def test_without_runs_the_default_curve_is_believed():
    assert Estimates().curve(elastic()) is DEFAULT
    assert taught(elastic(), (1.0, 2.0)).curve(elastic()) is DEFAULT


def test_the_spread_says_how_far_off_beliefs_were():
    right, wrong = (
        an_action("a", work_s=2.0, kind="right"),
        an_action("a", work_s=2.0, kind="wrong"),
    )
    assert taught(right, (2.0, 1.0), times=20).spread(right) == pytest.approx(0.0)
    assert taught(wrong, (1.0, 1.0), (4.0, 1.0), times=20).spread(wrong) > 0.5
    assert Estimates().spread(right) == 0.0


def test_what_nobody_stated_is_uncertain_until_some_have_ended():
    unknown = an_action("a", work_s=None, kind="steady")
    assert Estimates().spread(unknown) == UNKNOWN_SPREAD
    spreads = [taught(unknown, (2.0, 1.0), times=n).spread(unknown) for n in (1, 10, 100)]
    assert UNKNOWN_SPREAD > spreads[0] > spreads[1] > spreads[2] > 0.0


class TestWhatIsLeft:
    def test_a_certain_belief_leaves_its_rest(self):
        assert residual_s(10.0, 0.0, 4.0) == 6.0
        assert residual_s(10.0, CERTAIN / 2, 10.0) == RESIDUE * 10.0

    def test_before_it_began_all_is_left(self):
        assert residual_s(10.0, 1.0, 0.0) == 10.0
        assert residual_s(0.0, 1.0, 5.0) == 0.0

    def test_the_longer_an_uncertain_action_outlives_its_belief_the_more_is_left(self):
        left = [residual_s(10.0, 1.0, done_s) for done_s in (10.0, 100.0, 1000.0)]
        assert left == sorted(left)
        assert left[0] > 5.0

    def test_far_beyond_its_belief_as_much_again_is_left(self):
        assert residual_s(10.0, CERTAIN, 1e6) == 1e6


class TestOneAmount:
    """Elastic, but a node has no more than one of its amounts: it runs as fast as on that."""

    def an_action(self, name: str, work_s: float | None = 40.0) -> Action:
        needs, linear = {"cpu": {"choices": [4, 8]}}, {"power": 1.0}
        return an_action(name, needs, elastic="cpu", speedup=linear, work_s=work_s)

    def test_its_place_in_line_is_by_the_cores_it_uses(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=4))
        scheduler.handle_all([Submitted(an_action("x", 4)), Submitted(self.an_action("a"))], 0.0)
        (said,) = scheduler.explain(ActionId("a"), 0.0).hindrances
        assert "overdue in 1200.0 s" in said.starts_when

    def test_what_is_learned_is_its_work_on_one(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=4))
        scheduler.handle(Submitted(self.an_action("a", None)), 0.0)
        scheduler.handle(Finished(ActionId("a")), 10.0)
        assert scheduler.estimates.work_s(self.an_action("b", None)) == pytest.approx(40.0)

    def test_a_right_belief_is_no_error(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=4))
        scheduler.handle(Submitted(self.an_action("a")), 0.0)
        scheduler.handle(Finished(ActionId("a")), 10.0)
        assert scheduler.estimates.spread(self.an_action("b")) == pytest.approx(0.0)
