"""Runs on clusters that are not there: who waits for whom, and what it costs."""

import asyncio
from dataclasses import dataclass
from statistics import fmean

import pytest
from msgspec import structs

from artangram.core.rollout.affinity import affinity_of
from artangram.core.rollout.split import splits_of
from artangram.core.rollout.weights import Staleness, preset
from artangram.envs.protocol import Problem
from artangram.gateway.hardware import model_shape
from artangram.models.tokenizer import USER, ChatInput, Message
from artangram.pipeline.loops import one_off, synchronous
from artangram_bench.simulated.cluster import PoolPlan, Scenario, WeightTimes
from artangram_bench.simulated.run import Outcome, simulate
from artangram_bench.simulated.tasks import Step, SyntheticTask, TaskShape
from artangram_bench.simulated.words import CountingTokenizer, countdown, words

TASK = TaskShape(
    name="t",
    turns=(3, 6),
    prompt_tokens=200,
    seen_tokens=50,
    reply_tokens=40,
    turn_s=10.0,
    turn_sigma_s=6.0,
)
SMALL = Scenario(
    model=model_shape("qwen3-8b"),
    pools=(PoolPlan(hardware="H800", devices=2),),
    tasks=(TASK,),
    groups=4,
    group_size=4,
    steps=3,
    train_s=20.0,
    weights=WeightTimes(near_s=4.0, load_s=1.0),
)


def test_the_same_seed_gives_the_same_run_and_another_gives_another():
    assert simulate(SMALL) == simulate(SMALL)
    assert simulate(SMALL) != simulate(structs.replace(SMALL, seed=1))


IN_TURN = structs.replace(SMALL, loop=synchronous, staleness=preset("sync"))
WEIGHTS_S = 2 * (4.0 + 1.0)
"""Two replicas one after the other."""


def test_a_synchronous_step_is_sampling_training_and_weights():
    outcome = simulate(IN_TURN)
    assert outcome.worst_staleness == 0
    for step_s, waited_s in zip(outcome.steps_s[1:], outcome.waited_s[1:], strict=True):
        assert step_s == pytest.approx(waited_s + 20.0 + WEIGHTS_S)


def test_training_takes_longer_the_more_tokens_a_batch_has():
    scenario = structs.replace(IN_TURN, train_token_s=0.01, steps=1)
    outcome = simulate(scenario)
    assert outcome.trained_s == pytest.approx((20.0 + 0.01 * outcome.tokens[0],))


def test_environments_in_step_are_slower_the_more_they_differ():
    gains = []
    for sigma in (1.0, 8.0):
        task = structs.replace(TASK, turn_sigma_s=sigma)
        apart = structs.replace(IN_TURN, tasks=(task,), steps=1)
        together = structs.replace(apart, in_step=True)
        gains.append(simulate(together).steps_s[0] / simulate(apart).steps_s[0])
    assert 1.0 < gains[0] < gains[1]


def test_training_hides_behind_sampling_and_the_bound_holds():
    in_turn = simulate(structs.replace(IN_TURN, steps=5))
    hidden = simulate(structs.replace(SMALL, steps=5))
    assert hidden.step_s < in_turn.step_s - 15.0
    assert hidden.worst_staleness <= 1


def test_a_batch_behind_learns_while_the_next_is_sampled():
    """Each step is the longer of both, and then the weights; the data is one version old."""
    outcome = simulate(structs.replace(IN_TURN, loop=one_off))
    assert outcome.worst_staleness == 1
    later = outcome.waited_s[1:]
    assert all(waited_s > 20.0 for waited_s in later)
    assert outcome.steps_s[1:] == pytest.approx([waited_s + WEIGHTS_S for waited_s in later])


def test_spares_shorten_the_wait_for_the_slowest():
    tail = structs.replace(TASK, reply_tokens=500.0, reply_spread=1.2, turn_s=0.0)
    scenario = structs.replace(IN_TURN, tasks=(tail,))
    plain, spared = simulate(scenario), simulate(structs.replace(scenario, extra_siblings=3))
    assert spared.step_s < 0.9 * plain.step_s
    # Short ones are first: the gain in tokens is less than the gain in steps.
    assert 1.0 < spared.tokens_per_s / plain.tokens_per_s < plain.step_s / spared.step_s
    assert spared.cancelled > 0 == plain.cancelled
    assert plain.cut_length is None
    # What was not waited for would have been longer, and often is already.
    assert spared.cut_length == pytest.approx(spared.cut_off["t"].tokens)


def an_outcome(*steps_s: float, tokens: tuple[int, ...] = ()) -> Outcome:
    done = simulate(structs.replace(IN_TURN, steps=1))
    return structs.replace(done, steps_s=steps_s, tokens=tokens or (1,) * len(steps_s), warm_up=1)


def test_a_step_takes_as_long_whichever_of_long_and_short_ones_is_last():
    ends_long = an_outcome(500.0, *(40.0, 140.0) * 5)
    ends_short = an_outcome(500.0, *(40.0, 140.0) * 5, 40.0)
    assert ends_long.step_s == pytest.approx(90.0, rel=0.02)
    assert ends_short.step_s == pytest.approx(90.0, rel=0.02)
    assert an_outcome(500.0, 70.0).step_s == pytest.approx(70.0)


def test_tokens_per_second_are_those_of_the_steps_that_count():
    outcome = an_outcome(500.0, 10.0, 10.0, 10.0, tokens=(7, 100, 100, 100))
    assert outcome.tokens_per_s == pytest.approx(10.0)


def test_a_replica_goes_on_while_a_version_is_pulled():
    outcome = simulate(SMALL)
    assert outcome.swaps == 2 * 3  # replicas, steps
    assert outcome.accumulated_s == pytest.approx(6 * 5.0)
    assert outcome.exposed_s == pytest.approx(6 * 1.0)


def test_routing_that_knows_no_hardware_sends_as_much_to_slow_replicas():
    pools = (PoolPlan(hardware="H800", devices=1), PoolPlan(hardware="L40S", devices=1))
    knowing = structs.replace(SMALL, pools=pools, environments=16)
    blind = structs.replace(knowing, knows_hardware=False)
    assert simulate(knowing).step_s < simulate(blind).step_s


def test_turns_are_read_by_one_replica_and_answered_by_another_if_somebody_says_so():
    pools = (PoolPlan(hardware="H800", devices=1), PoolPlan(hardware="H20", devices=1))
    long = structs.replace(TASK, prompt_tokens=8000, reply_tokens=200)
    whole = structs.replace(SMALL, pools=pools, tasks=(long,), steps=1)
    stages = splits_of({"t": {"prefill": "H800", "decode": "H20"}})
    split = structs.replace(whole, split=stages)
    assert simulate(split).trained == simulate(whole).trained
    assert simulate(split).steps_s != simulate(whole).steps_s


def test_auto_finds_a_split_that_gains_and_none_where_there_is_none():
    long = TaskShape(
        name="t", turns=(20, 25), prompt_tokens=1200, seen_tokens=900, reply_tokens=80, turn_s=0.5
    )
    both = (PoolPlan(hardware="H800", devices=2), PoolPlan(hardware="H20", devices=2))
    whole = structs.replace(
        IN_TURN,
        model=model_shape("qwen3-30b-a3b"),
        pools=both,
        tasks=(long,),
        groups=6,
        hit_rate=0.8,
        affinity=affinity_of("auto"),
        steps=1,
    )
    auto = structs.replace(whole, split=splits_of("auto"))
    assert simulate(auto).waited_s[0] < 0.85 * simulate(whole).waited_s[0]
    # Hardly anything is read: nobody is in the way of others.
    short = structs.replace(long, seen_tokens=20, prompt_tokens=20)
    whole = structs.replace(whole, tasks=(short,), hit_rate=1.0)
    auto = structs.replace(whole, split=splits_of("auto"))
    assert simulate(auto).waited_s[0] == pytest.approx(simulate(whole).waited_s[0], rel=0.03)


def test_replicas_far_away_get_weights_through_the_store_and_near_ones_directly():
    far = PoolPlan(hardware="H20", devices=1, is_far=True)
    times = WeightTimes(near_s=2.0, push_s=30.0, pull_s=4.0, load_s=1.0)
    pools = (*SMALL.pools, far)
    outcome = simulate(structs.replace(SMALL, pools=pools, weights=times, at_once=3))
    assert outcome.swaps == 3 * 3
    assert outcome.accumulated_s == pytest.approx(3 * (2 * (2.0 + 1.0) + 4.0 + 1.0))
    pushed = structs.replace(times, push_s=200.0)
    slow = simulate(structs.replace(SMALL, pools=pools, weights=pushed, at_once=3, steps=4))
    # One version at a time, and training hides behind its way.
    assert 205.0 <= min(slow.steps_s[2:]) < 205.0 + 20.0


def test_failing_resets_cost_time_and_no_trajectory():
    failing = structs.replace(TASK, reset_s=30.0, reset_failures=0.2)
    scenario = structs.replace(SMALL, tasks=(failing,), staleness=Staleness(max_staleness=1))
    outcome = simulate(scenario)
    healthy = simulate(structs.replace(SMALL, tasks=(structs.replace(TASK, reset_s=30.0),)))
    assert outcome.trained == healthy.trained == 3 * 16
    assert outcome.steps_s[0] > healthy.steps_s[0]


@dataclass
class Asked:
    prompt: tuple[int, ...]


def test_an_answer_is_as_long_as_was_said_also_after_a_break():
    said = Message(USER, words(5, 3, about="cats"))
    prompt = CountingTokenizer().first(ChatInput([said]))
    assert len(prompt) == 5
    assert list(countdown(Asked(prompt))) == [2, 1, 0]
    assert list(countdown(Asked((*prompt, 2)))) == [1, 0]


@pytest.mark.looptime
async def test_a_step_is_complete_without_those_who_left():
    step = Step()
    for _ in range(3):
        step.join()
    waiting = [asyncio.create_task(step.meet()) for _ in range(2)]
    await asyncio.sleep(1.0)
    assert not any(one.done() for one in waiting)
    step.leave()
    await asyncio.gather(*waiting)


def test_the_hit_rate_is_a_result_and_falls_where_memory_is_short():
    many = structs.replace(
        TASK, turns=(12, 16), prompt_tokens=4000, seen_tokens=2000, turn_s=0.1, turn_sigma_s=0.0
    )
    roomy = structs.replace(SMALL, tasks=(many,), steps=1, groups=2)
    model = structs.replace(model_shape("qwen3-8b"), kv_heads=32)
    cramped = structs.replace(roomy, model=model, groups=8)
    assert simulate(roomy).hit_rates["t"] > 0.8
    assert simulate(cramped).hit_rates["t"] < simulate(roomy).hit_rates["t"] - 0.2


def test_siblings_are_as_alike_as_the_shape_says():
    def spread(alike: float) -> float:
        shape = structs.replace(TASK, turns=(1, 100), alike=alike)
        task = SyntheticTask(shape)
        turns = [
            [
                task.env(Problem(id=f"p{n}", task="t"), trajectory=f"{n} {k}")._turns_left
                for k in "ab"
            ]
            for n in range(300)
        ]
        assert 45 < fmean(n for pair in turns for n in pair) < 56
        return fmean(abs(one - other) for one, other in turns)

    assert spread(1.0) == 0.0
    assert spread(0.0) == pytest.approx(100 / 3, rel=0.15)
    assert 0.4 < spread(0.5) / spread(0.0) < 0.85
