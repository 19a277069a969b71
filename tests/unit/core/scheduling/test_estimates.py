"""What is believed of actions, and what ended ones and callers teach."""

import pytest
from builders import a_cpu, a_scheduler, an_action

from artangram.core.ids import ActionId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.distribution import KnownDuration
from artangram.core.scheduling.estimates import Estimates
from artangram.core.scheduling.events import Finished, Submitted
from artangram.core.scheduling.speedup import DEFAULT, Amdahl


def elastic(work_s: float | None = None, speedup: object = None) -> Action:
    needs = {"cpu": {"min": 1, "max": 16}}
    return an_action("a", needs, elastic="cpu", work_s=work_s, speedup=speedup)


def taught(action: Action, *works_s: float, times: int = 1) -> Estimates:
    estimates = Estimates()
    teach(estimates, action, *works_s, times=times)
    return estimates


def teach(estimates: Estimates, action: Action, *works_s: float, times: int = 1) -> None:
    for _ in range(times):
        for work_s in works_s:
            estimates.observe(action, estimates.cell(action), work_s)


def median_s(estimates: Estimates, action: Action) -> float:
    return estimates.belief(action, estimates.cell(action)).median_s


def test_a_kind_never_seen_takes_about_a_second():
    assert median_s(Estimates(), an_action("a")) == pytest.approx(1.0, rel=0.2)


def test_work_is_learned_from_the_same_kind_only():
    estimates = taught(an_action("a", kind="slow"), 20.0, times=30)
    assert median_s(estimates, an_action("b", kind="slow")) == pytest.approx(20.0, rel=0.2)
    assert median_s(estimates, an_action("b", kind="other")) == pytest.approx(1.0, rel=0.2)


def test_another_job_starts_from_what_the_kind_showed_and_then_has_its_own():
    estimates = taught(an_action("a", job="x"), 20.0, times=30)
    other = an_action("b", job="y")
    assert median_s(estimates, other) == pytest.approx(20.0, rel=0.2)
    teach(estimates, other, 0.5, times=30)
    assert median_s(estimates, other) == pytest.approx(0.5, rel=0.2)
    assert median_s(estimates, an_action("a", job="x")) == pytest.approx(20.0, rel=0.2)


def test_the_first_of_a_problem_informs_its_siblings_and_nobody_else():
    estimates = taught(an_action("a"), 1.0, 4.0, 16.0, 64.0, times=10)
    for n in range(10):
        teach(estimates, an_action("a", problem=f"p{n}"), *[2.0 ** (n % 7)] * 4)
    teach(estimates, an_action("a", problem="long"), 60.0)
    assert median_s(estimates, an_action("b", problem="long")) == pytest.approx(60.0, rel=0.3)
    assert median_s(estimates, an_action("b", problem="new")) < 20.0


def test_what_is_not_asked_for_is_forgotten(monkeypatch):
    monkeypatch.setattr("artangram.core.scheduling.estimates.MOST_TASKS", 4)
    estimates = Estimates()
    for kind in ("a", "b", "c"):
        teach(estimates, an_action("x", kind=kind), 50.0, times=20)
    believed = [median_s(estimates, an_action("x", kind=kind)) for kind in ("c", "a")]
    assert believed == [pytest.approx(50.0, rel=0.2), pytest.approx(1.0, rel=0.2)]


class TestCallers:
    def test_a_caller_is_about_believed_at_first(self):
        belief = taught(an_action("a"), 1.0).belief(*said(Estimates(), 10.0))
        assert belief.median_s == pytest.approx(10.0, rel=0.2)
        assert 0.1 < belief.spread < 0.4

    def test_one_who_is_right_is_taken_at_its_word(self):
        action = an_action("a", work_s=10.0)
        estimates = taught(action, 10.0, times=20)
        belief = estimates.belief(an_action("b", work_s=33.0), estimates.cell(action))
        assert isinstance(belief, KnownDuration)
        assert belief.mean_s == pytest.approx(33.0)

    def test_one_who_is_always_off_by_the_same_factor_is_corrected(self):
        action = an_action("a", work_s=10.0)
        estimates = taught(action, 100.0, times=60)
        assert median_s(estimates, action) == pytest.approx(100.0, rel=0.2)

    def test_one_who_is_off_by_ten_either_way_hardly_counts(self):
        estimates = Estimates()
        for n in range(60):
            teach(estimates, an_action("a", work_s=50.0 if n % 2 else 0.5), 5.0)
        low, high = (median_s(estimates, an_action("b", work_s=w)) for w in (0.5, 50.0))
        assert low == pytest.approx(5.0, rel=0.5)
        assert high == pytest.approx(5.0, rel=0.5)

    def test_what_one_job_states_does_not_discredit_another(self):
        estimates = Estimates()
        for n in range(40):
            teach(estimates, an_action("a", job="x", work_s=[0.01, 100.0][n % 2]), 1.0)
            teach(estimates, an_action("a", job="y", work_s=1.0), 1.0)
        belief = estimates.belief(*said(estimates, 7.0, job="y"))
        assert belief.mean_s == pytest.approx(7.0)

    @pytest.mark.parametrize("stated_s", [0.0, 1e-9, 1e9])
    def test_extremes_do_not_upset_it(self, stated_s):
        action = an_action("a", work_s=stated_s)
        estimates = taught(action, 1.0, 3.0, times=10)
        assert median_s(estimates, action) > 0.0
        assert Estimates().work_s(action) > 0.0


def said(estimates: Estimates, work_s: float, job: str = "default"):
    action = an_action("b", work_s=work_s, job=job)
    return action, estimates.cell(action)


class TestSpeedups:
    @pytest.mark.parametrize("serial", [0.02, 0.35])
    def test_they_are_learned_from_runs_at_several_sizes(self, serial):
        truth, estimates = Amdahl(serial), Estimates()
        for _ in range(40):
            for units in (1, 2, 4, 16):
                held = {units: 10.0 / truth.speed(units)}
                estimates.observe_scaling(elastic(), KnownDuration(10.0), held, units)
        learned = estimates.curve(elastic())
        assert learned.speed(16) == pytest.approx(truth.speed(16), rel=0.2)
        assert estimates.speed(elastic(), 16) == learned.speed(16)

    def test_a_stated_one_is_not_overruled(self):
        stated, estimates = elastic(speedup={"amdahl": 0.5}), Estimates()
        for _ in range(50):
            estimates.observe_scaling(stated, KnownDuration(10.0), {8: 10.0}, 8)
        assert estimates.curve(stated) == Amdahl(0.5)
        assert estimates.curve(elastic()) is DEFAULT

    def test_a_run_of_no_time_teaches_nothing(self):
        estimates = Estimates()
        estimates.observe_scaling(elastic(), KnownDuration(10.0), {8: 0.0}, 8)
        assert estimates.curve(elastic()) is DEFAULT


class TestOneAmount:
    """Elastic, but a node has no more than one of its amounts: it runs as fast as on that."""

    def an_action(self, name: str, work_s: float | None = 40.0) -> Action:
        needs, linear = {"cpu": {"choices": [4, 8]}}, {"power": 1.0}
        return an_action(name, needs, elastic="cpu", speedup=linear, work_s=work_s)

    def test_what_is_learned_is_its_work_on_one(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=4))
        for n in range(20):
            scheduler.handle(Submitted(self.an_action(f"a{n}", None)), 10.0 * n)
            scheduler.handle(Finished(ActionId(f"a{n}")), 10.0 * n + 10.0)
        like = self.an_action("b", None)
        assert median_s(scheduler.estimates, like) == pytest.approx(40.0, rel=0.2)

    def test_its_rank_counts_the_cores_it_uses(self):
        """Forty seconds on one core are ten on four: it goes before eleven seconds of four."""
        scheduler = a_scheduler(cpu=a_cpu(cores=4))
        scheduler.handle(Submitted(an_action("x", 4, work_s=1.0)), 0.0)
        scheduler.handle(Submitted(an_action("r", 4, work_s=14.0)), 0.0)
        scheduler.handle(Submitted(self.an_action("a")), 0.0)
        (said,) = scheduler.explain(ActionId("r"), 0.0).hindrances
        assert said.ahead == 1
