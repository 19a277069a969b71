"""Every problem is accounted for exactly once."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_world import FakeTask

from artangram.core.errors import BadInput
from artangram.core.rollout.verdict import DropReason
from artangram.rollout.source import Issue, Source, SourceState, Stage


def a_source(**settings: object) -> Source:
    return Source([FakeTask(name="a"), FakeTask(name="b")], **settings)


def test_the_same_seed_draws_the_same_problems():
    drawn = [[a_source(seed=3).next("a").problem.id for _ in range(2)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert a_source(seed=4).next("a").problem.id != drawn[0][0]


def test_what_comes_back_goes_out_again_before_new_ones():
    source = a_source()
    first, second = source.next("a"), source.next("a")
    source.give_back(first, DropReason.TOO_STALE)
    again = source.next("a")
    assert (again.index, again.times, again.problem) == (0, 2, first.problem)
    assert source.next("a").index == 2
    source.train(second)
    source.train(again)
    assert source.positions()["a"].trained == 2


def test_a_problem_goes_out_only_so_often():
    source = a_source(most_issues=2)
    source.give_back(source.next("a"), DropReason.INFRA)
    source.give_back(source.next("a"), DropReason.INFRA)
    assert source.positions()["a"].dropped == {DropReason.INFRA: 1}
    assert source.next("a").index == 1


def test_a_problem_does_not_end_twice():
    source = a_source()
    issue = source.next("a")
    source.train(issue)
    with pytest.raises(KeyError):
        source.drop(issue, DropReason.SURPLUS)


def test_an_old_issue_does_not_end_a_new_one():
    source = a_source()
    old = source.next("a")
    source.give_back(old, DropReason.SURPLUS)
    source.next("a")
    with pytest.raises(AssertionError, match=r"a-0\.2 is out"):
        source.train(old)


def test_shares_follow_the_curriculum():
    stages = [Stage(from_version=10, shares={"a": 1, "b": 3}), Stage(shares={"a": 1})]
    source = a_source(stages=stages)
    assert source.shares(9) == {"a": 1}
    assert source.shares(10) == {"a": 1, "b": 3}
    assert a_source(stages=[Stage(from_version=5, shares={"b": 1})]).shares(0) == {"b": 1}
    assert a_source().shares(0) == {"a": 1, "b": 1}


def test_sources_that_cannot_work_say_what_would():
    with pytest.raises(BadInput, match="give each a name of its own"):
        Source([FakeTask(), FakeTask()])
    with pytest.raises(BadInput, match="give each a name of its own"):
        Source([])
    with pytest.raises(BadInput, match="are not tasks of this run"):
        a_source(stages=[Stage(shares={"c": 1})])
    with pytest.raises(BadInput, match="resume with these"):
        a_source(seed=1).restore(a_source(seed=2).save())


moves = st.lists(st.sampled_from(["draw", "train", "drop", "back", "restart"]), max_size=60)


@given(moves, st.randoms(use_true_random=False))
def test_no_problem_is_lost_and_none_ends_twice(moves, chance):
    source = a_source(most_issues=3)
    out: list[Issue] = []
    trained: list[str] = []
    dropped = 0
    for move in moves:
        if move == "draw":
            out.append(source.next("a"))
        elif move == "restart":
            saved = msgspec.json.decode(msgspec.json.encode(source.save()), type=SourceState)
            source = a_source(most_issues=3)
            source.restore(saved)
            out = []
        elif out:
            issue = out.pop(chance.randrange(len(out)))
            if move == "train":
                source.train(issue)
                trained.append(issue.problem.id)
            elif move == "drop" or issue.times >= 3:
                source.drop(issue, DropReason.SURPLUS)
                dropped += 1
            else:
                source.give_back(issue, DropReason.SURPLUS)
        account = source.positions()["a"]
        assert account.trained == len(trained) == len(set(trained))
        assert account.dropped.get(DropReason.SURPLUS, 0) == dropped
        assert account.drawn == account.trained + dropped + len(account.outstanding)
    assert source.num_outstanding == len(source.positions()["a"].outstanding)
