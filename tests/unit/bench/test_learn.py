"""What `bench learn` runs, and what it makes of it."""

from collections import Counter

import pytest
from msgspec import structs

from artangram_bench.learn import Asked, Kept, LearnRun, comparisons, keep, kept, plan


def a_run(asked, training_s, after=0.9):
    return LearnRun(
        **structs.asdict(asked),
        before=0.2,
        after=after,
        by_task={},
        training_s=training_s,
        trained=128,
        curve=(),
        max_staleness=1,
        fresh_error=0.0,
    )


def test_every_run_is_made_once_and_pairs_follow_each_other():
    asked = plan([3, 4], compare=True, shuffled=[3, 4])
    assert set(Counter(asked).values()) == {1}
    pairs = [(one.mode, one.latency_s > 0) for one in asked[:4]]
    modes = ("asynchronous", "synchronous")
    assert pairs == [(mode, waits) for waits in (True, False) for mode in modes]
    assert sorted(one.seed for one in asked if one.is_shuffled) == [3, 4]


def test_without_extras_each_seed_is_run_once_as_the_demo_is():
    asked = plan([3, 4], compare=False, shuffled=[])
    assert [one.seed for one in asked] == [3, 4]
    assert {(one.mode, one.is_shuffled) for one in asked} == {("asynchronous", False)}
    assert all(one.latency_s > 0 for one in asked)


def test_only_the_same_run_made_both_ways_is_compared():
    waiting = Asked(seed=0, latency_s=0.5)
    other_seed = Asked(seed=1, latency_s=0.5)
    computing = Asked(seed=0, latency_s=0.0)
    runs = [
        a_run(waiting, 10.0),
        a_run(structs.replace(waiting, mode="synchronous"), 20.0, after=0.8),
        a_run(other_seed, 5.0),
        a_run(computing, 8.0),
        a_run(structs.replace(computing, mode="synchronous"), 8.0),
    ]
    found = comparisons(runs)
    assert [(one.latency_s, one.speedup) for one in found] == [
        (0.5, pytest.approx(2.0)),
        (0.0, pytest.approx(1.0)),
    ]
    assert found[0].after == (0.9, 0.8)


def test_a_kept_run_is_taken_again_only_for_what_it_is_true_of(tmp_path):
    asked = Asked(seed=0, latency_s=0.5)
    run = a_run(asked, 10.0)
    keep(tmp_path, Kept(commit="abc", steps=9, run=run))
    assert kept(tmp_path, 9, asked, "abc") == run
    assert kept(tmp_path, 8, asked, "abc") is None
    assert kept(tmp_path, 9, asked, "abd") is None
    assert kept(tmp_path, 9, structs.replace(asked, is_shuffled=True), "abc") is None


def test_a_run_of_a_changed_tree_is_never_taken_again(tmp_path):
    asked = Asked(seed=0, latency_s=0.5)
    keep(tmp_path, Kept(commit="abc+", steps=9, run=a_run(asked, 10.0)))
    assert kept(tmp_path, 9, asked, "abc+") is None


def test_a_file_that_is_cut_off_counts_as_none(tmp_path):
    asked = Asked(seed=0, latency_s=0.5)
    (tmp_path / f"{asked.name}.json").write_bytes(b'{"commit": "abc", "ru')
    assert kept(tmp_path, 9, asked, "abc") is None
