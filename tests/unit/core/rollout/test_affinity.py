"""Which class and which replica answers, and why not another."""

import pytest
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.rollout.affinity import Auto, Declared, Router, affinity_of
from artangram.core.rollout.costs import (
    GUESS,
    UNKNOWN_DECODE,
    Candidate,
    Habits,
    Observed,
    Rates,
    RoutedRequest,
    TokenWork,
)

COMPUTE = Rates(prefill_per_s=10_000, decode_per_s=50)
BANDWIDTH = Rates(prefill_per_s=1_000, decode_per_s=100)
RATES = {"compute": COMPUTE, "bandwidth": BANDWIDTH}
IDLE = TokenWork(0, 0)


def a_replica(
    name: str, hardware: str, *, outstanding: TokenWork = IDLE, holds: int = 0
) -> Candidate:
    return Candidate(name=name, hardware=hardware, outstanding=outstanding, holds=holds)


def a_request(task: str = "swe", *, prompt: int = 100, most: int = 1000) -> RoutedRequest:
    return RoutedRequest(task=task, prompt_tokens=prompt, most_tokens=most)


def learned(router: Router, task: str, *, prefill: float, decode: float) -> None:
    router.learn(Observed(task=task, hardware="compute", work=TokenWork(prefill, decode)))


BOTH = [a_replica("c", "compute"), a_replica("b", "bandwidth")]


def test_a_class_by_itself_is_preferred_and_any_other_is_a_fallback():
    router = Router(affinity_of({"math": "bandwidth"}), rates=RATES)
    assert router.choose(a_request("math"), BOTH).replica == "b"
    fallback = router.choose(a_request("math"), BOTH[:1])
    assert (fallback.replica, fallback.instead_of) == ("c", "bandwidth")


def test_a_list_of_classes_is_all_there_is():
    router = Router(affinity_of({"math": ["bandwidth", "edge"]}))
    assert router.choose(a_request("math"), BOTH[:1]) is None
    assert router.choose(a_request("math"), [a_replica("e", "edge")]).instead_of == "bandwidth"


def test_a_task_nobody_named_follows_the_default_or_goes_anywhere():
    assert Router(affinity_of({"default": "bandwidth"})).choose(a_request(), BOTH).replica == "b"
    anywhere = Router(affinity_of({"math": "bandwidth"}), rates=RATES)
    busy = [a_replica("c", "compute", outstanding=TokenWork(1e6, 0)), BOTH[1]]
    choice = anywhere.choose(a_request("swe"), busy)
    assert (choice.replica, choice.instead_of) == ("b", "")


def test_nobody_is_chosen_when_nobody_is_there():
    assert Router(Auto()).choose(a_request(), []) is None


@pytest.mark.parametrize("bad", ["fast", {"math": []}, {"math": ""}, {"math": [3]}])
def test_a_bad_affinity_is_refused(bad):
    with pytest.raises(BadInput, match="affinity"):
        affinity_of(bad)


def test_auto_is_a_word():
    assert affinity_of("auto") == Auto()


def test_the_replica_with_less_to_do_is_chosen():
    busy = a_replica("x", "compute", outstanding=TokenWork(5000, 0))
    router = Router(Declared(tasks={}), rates=RATES)
    assert router.choose(a_request(), [busy, a_replica("y", "compute")]).replica == "y"


def test_a_session_stays_where_it_was_read_while_that_is_worth_the_wait():
    router = Router(Declared(tasks={}), rates=RATES)
    empty = a_replica("y", "compute")
    request = a_request(prompt=10_000)
    near = a_replica("x", "compute", outstanding=TokenWork(5_000, 0), holds=9_900)
    assert router.choose(request, [near, empty]).replica == "x"
    far = a_replica("x", "compute", outstanding=TokenWork(20_000, 0), holds=9_900)
    assert router.choose(request, [far, empty]).replica == "y"


def test_what_a_replica_has_forgotten_is_read_again():
    forgetful = Rates(prefill_per_s=10_000, decode_per_s=50, hit_rate=0.5)
    router = Router(Declared(tasks={}), rates={"compute": forgetful})
    held = a_replica("x", "compute", outstanding=TokenWork(6_000, 0), holds=10_000)
    choice = router.choose(a_request(prompt=10_000), [held])
    assert choice.work.prefill == 5_000
    # Half a prompt is not worth the wait for it.
    assert router.choose(a_request(prompt=10_000), [held, BOTH[0]]).replica == "c"


def test_what_must_be_read_keeps_away_from_who_writes_for_many():
    router = Router(Declared(tasks={}), rates=RATES)
    learned(router, "math", prefill=100, decode=1000)
    learned(router, "swe", prefill=8000, decode=10)
    # Ten long answers wait while it is read; the other has more to do before it.
    writing = a_replica("x", "compute", outstanding=TokenWork(0, 10_000))
    reading = a_replica("y", "compute", outstanding=TokenWork(40_000, 0))
    assert router.choose(a_request(prompt=8000), [writing, reading]).replica == "y"
    assert router.choose(a_request(prompt=8), [writing, reading]).replica == "x"


def test_answers_keep_away_from_who_reads_for_others_all_the_time():
    router = Router(affinity_of({"swe": "compute"}), rates=RATES)
    learned(router, "swe", prefill=0, decode=100)
    # 2 s of writing become 4 s where half of the time goes into reading.
    reads = structs.replace(a_replica("reads", "compute"), reads_per_s=5000)
    for waits_s, best in ((1.9, "waits"), (2.1, "reads")):
        waits = a_replica("waits", "compute", outstanding=TokenWork(waits_s * 10_000, 0))
        assert router.choose(a_request(prompt=0), [reads, waits]).replica == best


def test_tokens_are_part_of_long_answers():
    router = Router(Declared(tasks={}), rates=RATES)
    for _ in range(9):
        learned(router, "swe", prefill=0, decode=100)
    learned(router, "math", prefill=0, decode=900)
    assert router.habits.answer() == pytest.approx((9 * 100**2 + 900**2) / 1800)


def test_an_answer_is_expected_to_be_as_long_as_those_before_or_as_allowed():
    router = Router(Declared(tasks={}), rates=RATES)
    learned(router, "swe", prefill=100, decode=40)
    assert router.choose(a_request(), BOTH).work.decode == 40
    assert router.choose(a_request(most=5), BOTH).work.decode == 5


def test_auto_sends_readers_to_compute_and_writers_to_bandwidth():
    router = Router(Auto(), rates=RATES)
    learned(router, "frozen-lake", prefill=8000, decode=20)
    learned(router, "math", prefill=100, decode=4000)
    lake, math = a_request("frozen-lake", prompt=8000), a_request("math", most=8000)
    assert router.choose(lake, BOTH).hardware == "compute"
    assert router.choose(math, BOTH).hardware == "bandwidth"
    assert (router.home("frozen-lake"), router.home("math")) == ("compute", "bandwidth")


def test_a_task_without_history_goes_where_it_is_done_first():
    router = Router(Auto(), rates=RATES)
    assert router.choose(a_request("new", most=100), BOTH).hardware == "bandwidth"
    assert router.home("new") is None


def test_auto_keeps_a_task_where_it_is_for_a_small_gain_and_moves_it_for_a_large_one():
    router = Router(Auto(margin=0.2), rates=RATES)
    learned(router, "t", prefill=2000, decode=100)  # 2.2 s on compute, 3 s on bandwidth
    router.choose(a_request("t"), BOTH)
    for _ in range(200):
        learned(router, "t", prefill=1000, decode=100)  # 2.1 s and 2 s: not worth a move
    router.choose(a_request("t"), BOTH)
    assert router.home("t") == "compute"
    for _ in range(200):
        learned(router, "t", prefill=100, decode=1000)
    router.choose(a_request("t"), BOTH)
    assert router.home("t") == "bandwidth"


def test_auto_spills_when_the_home_of_the_task_is_clearly_later():
    router = Router(Auto(margin=0.2), rates=RATES)
    learned(router, "t", prefill=100, decode=1000)
    crowd = a_replica("b", "bandwidth", outstanding=TokenWork(60_000, 0))
    request = a_request("t", most=1000)
    assert router.choose(request, BOTH).spilled_from == ""
    choice = router.choose(request, [a_replica("c", "compute"), crowd])
    assert (choice.replica, choice.spilled_from) == ("c", "bandwidth")


def test_a_request_leaves_its_class_for_less_than_a_task_does():
    router = Router(Auto(margin=0.2, leave=0.02), rates=RATES)
    learned(router, "t", prefill=100, decode=1000)  # 20 s on compute, 10.1 s on bandwidth
    request = a_request("t", most=1000)
    for waiting, where in ((9_950, "b"), (11_000, "c")):  # 20.05 s and 21.1 s on bandwidth
        crowd = a_replica("b", "bandwidth", outstanding=TokenWork(waiting, 0))
        assert router.choose(request, [a_replica("c", "compute"), crowd]).replica == where
    assert router.home("t") == "bandwidth"


def test_auto_falls_back_when_the_home_of_the_task_is_gone_and_returns():
    router = Router(Auto(), rates=RATES)
    learned(router, "t", prefill=100, decode=1000)
    router.choose(a_request("t"), BOTH)
    choice = router.choose(a_request("t"), BOTH[:1])
    assert (choice.hardware, choice.instead_of) == ("compute", "bandwidth")
    assert router.choose(a_request("t"), BOTH).hardware == "bandwidth"


def seen(hardware: str, *, prefill_s: float | None, decode_s: float | None) -> Observed:
    work = TokenWork(1000, 100)
    return Observed(task="t", hardware=hardware, work=work, prefill_s=prefill_s, decode_s=decode_s)


def test_auto_tries_every_class_a_few_times_before_it_judges():
    router = Router(Auto(probes=2))
    tried = [router.choose(a_request("t"), BOTH).hardware for _ in range(4)]
    assert sorted(tried) == ["bandwidth", "bandwidth", "compute", "compute"]
    # All probes are under way: what comes now does not wait for them.
    assert router.choose(a_request("t"), BOTH) is not None
    for _ in range(2):
        router.learn(seen("compute", prefill_s=0.1, decode_s=2.0))
    assert router.choose(a_request("t"), BOTH).hardware == "compute"
    for _ in range(2):
        router.learn(seen("bandwidth", prefill_s=1.0, decode_s=0.1))
    assert router.choose(a_request("t", prompt=10), BOTH).hardware == "bandwidth"


def test_probes_that_died_with_their_replica_are_sent_again():
    router = Router(Auto(probes=1), rates={"compute": COMPUTE})
    assert router.choose(a_request("t"), BOTH).hardware == "bandwidth"
    assert router.choose(a_request("t"), BOTH).hardware == "compute"
    router.lost("bandwidth", replica="b")
    assert router.choose(a_request("t"), BOTH).hardware == "bandwidth"


def test_rates_are_measured_and_guessed_until_then():
    router = Router(Auto())
    assert router.speeds.of("compute") == GUESS
    router.learn(seen("compute", prefill_s=None, decode_s=1.0))
    assert router.speeds.of("compute").decode_per_s == pytest.approx(100)
    # Reading was not seen: it is as much faster than writing as the guess says.
    assert router.speeds.of("compute").prefill_per_s == pytest.approx(10_000)
    router.learn(seen("compute", prefill_s=0.5, decode_s=1.0))
    assert router.speeds.of("compute").prefill_per_s == pytest.approx(2000)
    assert router.speeds.samples("compute") == 2


def test_instant_work_teaches_nothing_about_speed():
    router = Router(Auto())
    router.learn(seen("compute", prefill_s=0.0, decode_s=0.0))
    assert router.speeds.of("compute") == GUESS


def test_declared_rates_are_not_overruled():
    router = Router(Auto(), rates=RATES)
    router.learn(seen("compute", prefill_s=100.0, decode_s=100.0))
    assert router.speeds.of("compute") == COMPUTE


def test_what_engines_find_in_their_caches_is_learned_for_each_class():
    router = Router(Auto(), rates={"H800": COMPUTE, "H20": COMPUTE})
    wanted = RoutedRequest(task="lake", prompt_tokens=1000, most_tokens=10)
    here = Candidate(name="a", hardware="H800", outstanding=TokenWork(0.0, 0.0), holds=1000)
    assert router.costs.work(wanted, here).prefill == 0.0
    for held, found in ((1000, 600), (500, 300), (0, 200)):
        router.learn(
            Observed(task="lake", hardware="H800", work=TokenWork(400, 10), held=held, found=found)
        )
    assert router.costs.work(wanted, here).prefill == pytest.approx(400.0)
    assert router.speeds.hit_rate("H20") == 1.0
    # Its replica still costs as little: leaving it would only make the rates fall further.
    assert router.costs.read_s(wanted, here) == 0.0


def test_answers_without_tokens_say_nothing_about_the_usual_length():
    habits = Habits()
    habits.learn(Observed(task="t", hardware="h", work=TokenWork(10.0, 0.0)))
    assert habits.answer() == UNKNOWN_DECODE
