"""When a run is evaluated, what it keeps of that, and when that ends it."""

import asyncio

import pytest
from exam_builder import an_exam, found

from artangram.core.errors import BadInput, InfraFailed
from artangram.pipeline.exams import BEST_NAME, FILE_NAME, Exams, read, scalars, why_over
from artangram.pipeline.settings import ExamPlan


class Asked:
    """Answers with the scores it is given; a string is a failure of infrastructure."""

    def __init__(self, *scores):
        self.scores = list(scores)
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self, *, name):
        await self.may_end.wait()
        score = self.scores.pop(0)
        if isinstance(score, str):
            raise InfraFailed(score)
        return found(score)


def some_exams(out, asked, *, after_step=0, steps=9, **plan):
    def write_model(version, directory):
        (directory / "weights").write_text(f"version {version}")

    return Exams(
        ExamPlan(**{"every": 2, **plan}),
        out=out,
        steps=steps,
        after_step=after_step,
        ask=asked,
        write_model=write_model,
        on_exam=lambda record: None,
    )


async def made(exams, *steps):
    for step in steps:
        exams.begin(step, version=step)
        await exams.settled()


async def test_they_are_made_before_the_first_step_then_every_so_often_and_at_the_end(tmp_path):
    exams = some_exams(tmp_path, Asked(*[0.5] * 9), steps=5)
    await made(exams, 0, 1, 2, 3, 4, 5)
    assert [record.step for record in read(tmp_path / FILE_NAME)] == [0, 2, 4, 5]


async def test_a_version_is_evaluated_once_also_after_steps_that_made_none(tmp_path):
    exams = some_exams(tmp_path, Asked(0.5, 0.6))
    for step in (2, 4):
        exams.begin(step, version=1)
        await exams.settled()
    assert [record.step for record in exams.records] == [2]


async def test_the_best_is_kept_by_name_and_only_the_best(tmp_path):
    await made(some_exams(tmp_path, Asked(0.2, 0.7, 0.5)), 2, 4, 6)
    assert (tmp_path / BEST_NAME / "weights").read_text() == "version 4"
    assert [path.name for path in sorted(tmp_path.glob("best*"))] == ["best", "best-00000004"]
    assert [record.is_best for record in read(tmp_path / FILE_NAME)] == [True, True, False]


async def test_a_resumed_run_forgets_evaluations_of_steps_that_it_makes_again(tmp_path):
    await made(some_exams(tmp_path, Asked(0.2, 0.7, 0.5)), 2, 4, 6)
    again = some_exams(tmp_path, Asked(0.6), after_step=5)
    await made(again, 4, 6)
    assert [(r.step, r.found.success) for r in read(tmp_path / FILE_NAME)] == [
        (2, 0.2),
        (4, 0.7),
        (6, 0.6),
    ]
    assert (tmp_path / BEST_NAME / "weights").read_text() == "version 4"


async def test_one_that_infrastructure_failed_ends_nothing(tmp_path, caplog):
    exams = some_exams(tmp_path, Asked("no engine", 0.5))
    await made(exams, 2, 4)
    assert [record.step for record in exams.records] == [4]
    assert "the evaluation of step 2 failed, the run goes on: no engine" in caplog.text


async def test_what_is_under_way_is_given_up_with_the_run(tmp_path):
    asked = Asked(0.5)
    asked.may_end.clear()
    exams = some_exams(tmp_path, asked)
    exams.begin(2, version=2)
    await asyncio.sleep(0)
    await exams.aclose()
    assert not (tmp_path / FILE_NAME).exists()


async def test_a_run_that_is_over_is_not_evaluated_again(tmp_path):
    exams = some_exams(tmp_path, Asked(0.6, 0.1), goal=0.5)
    await made(exams, 2, 4)
    assert [record.step for record in exams.records] == [2]


SCORES = [an_exam(0, 0.2), an_exam(2, 0.6), an_exam(4, 0.5), an_exam(6, 0.6)]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({}, ""),
        ({"patience": 3}, ""),
        ({"patience": 2}, "2 evaluations in a row did not exceed the 0.600 of step 2"),
        ({"goal": 0.6}, "step 2 reached 0.600 of 0.6"),
        ({"goal": 0.7}, ""),
    ],
)
def test_a_run_ends_at_its_goal_or_without_gain(plan, why):
    assert why_over(ExamPlan(every=2, **plan), SCORES) == why


def test_curves_have_the_names_of_the_tasks():
    assert scalars(an_exam(2, 0.5)) == {"eval": 0.5, "eval/calc": 0.5, "run/eval_s": 1.0}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"every": -1}, "eval.every"),
        ({"problems": 0}, "eval.problems"),
        ({"goal": 1.0}, "eval.every"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(fields, field):
    with pytest.raises(BadInput) as refused:
        ExamPlan(**fields)
    assert refused.value.field == field
