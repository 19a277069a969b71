"""The roofline says what is fast where."""

import pytest

from artangram.core.errors import BadInput
from artangram.gateway.hardware import Roofline, hardware, model_shape, new_tokens

H800, H20 = hardware("H800"), hardware("H20")
EIGHT = model_shape("qwen3-8b")


def on(kind: str, model: str = "qwen3-8b", **fields: object) -> Roofline:
    return Roofline(hardware=hardware(kind), model=model_shape(model), **fields)


def test_weights_are_as_large_as_the_paper_says():
    gib = [model_shape(f"qwen3-{size}").weight_bytes / 2**30 for size in ("8b", "14b", "32b")]
    assert gib == pytest.approx([15.26, 27.51, 61.02], rel=0.01)


def test_a_token_of_context_holds_two_bytes_for_keys_and_values_of_each_layer():
    assert EIGHT.kv_bytes == 147_456


def test_arithmetic_reads_and_bandwidth_writes():
    assert on("H800").prefill_s(8192) < 0.3 * on("H20").prefill_s(8192)
    assert on("H20").decode_s([8192] * 64) < on("H800").decode_s([8192] * 64)


def test_two_fast_ones_read_about_twice_as_fast_as_six_cheap_ones_that_cost_as_much():
    assert 2 * H800.price == pytest.approx(6 * H20.price, rel=0.06)
    ratio = (on("H800").prefill_s(32_768) / 2) / (on("H20").prefill_s(32_768) / 6)
    assert 0.45 < ratio < 0.6


def test_more_company_costs_less_than_it_brings():
    alone, together = on("H20").decode_s([4096]), on("H20").decode_s([4096] * 32)
    assert alone < together < 4 * alone


def test_devices_together_are_faster_but_not_by_their_number():
    one, four = on("H800", tp=1, overhead_s=0.0), on("H800", tp=4, overhead_s=0.0)
    assert 0.25 < four.decode_s([4096]) / one.decode_s([4096]) < 0.4


def test_few_tokens_wake_few_experts():
    sparse = on("H800", "qwen3-30b-a3b", tp=2, overhead_s=0.0)
    alone, crowd = sparse.decode_s([1]), sparse.decode_s([1] * 256)
    assert alone < 0.2 * crowd


@pytest.mark.parametrize(("hit_rate", "left"), [(1.0, 100), (0.5, 550), (0.0, 1000)])
def test_what_the_cache_misses_is_read_again(hit_rate: float, left: int):
    assert new_tokens(1000, cached=900, hit_rate=hit_rate) == left
    seen = 1000 - left / 2
    assert on("H20").prefill_s(1000, cached=900, hit_rate=hit_rate) == pytest.approx(
        on("H20").iteration_s(0, context=0.0, prefill=left, seen=seen)
    )


def test_reading_attends_to_all_that_was_read_before():
    early, late = on("H800").prefill_s(2048), on("H800").prefill_s(18_432, cached=16_384)
    more = 2048 * 16_384 * EIGHT.attention_flops / (H800.flops * H800.mfu)
    assert late - early == pytest.approx(more)


def test_the_last_token_is_always_read():
    assert new_tokens(10, cached=99, hit_rate=1.0) == 1


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(BadInput, match="does not fit"):
        on("L40S", "qwen3-32b", tp=1)


def test_unknown_names_say_which_are_known():
    with pytest.raises(BadInput, match="H800"):
        hardware("B9000")
    with pytest.raises(BadInput, match="qwen3-8b"):
        model_shape("gpt")
