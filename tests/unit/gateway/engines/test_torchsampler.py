"""Tokens are drawn as asked, and their logprobs are those of what they were drawn from."""

import torch
from models_support import VOCAB_SIZE

from artangram.gateway.engines.protocol import Sampling
from artangram.gateway.engines.torchsampler import Cuts, Sampler, log_probabilities, sampled

PROBABILITIES = torch.tensor([0.1, 0.0, 0.5, 0.15, 0.25])
LOGITS = PROBABILITIES.log().unsqueeze(0)


def drawn(
    share: float,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
) -> tuple[int, float]:
    temperatures = torch.tensor([temperature])
    cuts = Cuts(
        top_ps=torch.tensor([top_p]), top_ks=torch.tensor([top_k]), min_ps=torch.tensor([min_p])
    )
    logprobs = log_probabilities(LOGITS, temperatures=temperatures)
    uniforms = torch.tensor([share], dtype=torch.float64)
    token = int(sampled(logprobs, uniforms, temperatures=temperatures, cuts=cuts))
    return token, float(logprobs[0, token].exp())


def choices(**how: float) -> set[int]:
    """All tokens that can come."""
    return {drawn(number / 200, **how)[0] for number in range(200)}


def one_draw(sampling: Sampling, *, prompt: tuple[int, ...] = (), num_sampled: int = 0, times=1):
    """The last of some draws of one request, from the same logits each time."""
    sampler = Sampler(1, 8, seed=0)
    sampler.prepare(0, sampling, room=8, prompt=prompt, num_sampled=num_sampled)
    logits = torch.tensor([[1.0, -1.0, 3.0, 0.5, 2.0]])
    return [sampler.draw(logits, [0], counts=[n]) for n in range(times)][-1]


def told(logits: list[float]) -> list[float]:
    return torch.log_softmax(torch.tensor(logits), dim=-1).tolist()


def alternatives(drawn) -> list[float]:
    """The logprobs of all five tokens, by token."""
    return [logprob for _, logprob in sorted(drawn.tops[0])]


def test_a_token_is_the_one_at_its_share_of_probability():
    shares = [0.0, 0.0999, 0.1001, 0.5999, 0.6001, 0.7499, 0.7501, 1 - 2**-53]
    assert [drawn(share)[0] for share in shares] == [0, 0, 2, 2, 3, 3, 4, 4]


def test_tokens_come_as_often_as_they_are_likely():
    uniforms = torch.rand(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tokens = sampled(log_probabilities(LOGITS.expand(20_000, -1)), uniforms)
    shares = tokens.bincount(minlength=5) / 20_000
    torch.testing.assert_close(shares, PROBABILITIES, atol=0.01, rtol=0)


def test_a_logprob_is_at_the_temperature_that_sampled():
    squared = PROBABILITIES**2 / (PROBABILITIES**2).sum()
    token, probability = drawn(0.5, temperature=0.5)
    torch.testing.assert_close(torch.tensor(probability), squared[token])


def test_temperature_zero_takes_the_likeliest_and_tells_its_own_probability():
    token, probability = drawn(0.99, temperature=0.0)
    assert token == 2
    torch.testing.assert_close(torch.tensor(probability), torch.tensor(0.5))


def test_top_p_keeps_the_fewest_tokens_that_reach_it_and_leaves_logprobs():
    assert choices(top_p=0.7) == {2, 4}
    assert choices(top_p=0.5) == {2}
    torch.testing.assert_close(torch.tensor(drawn(0.0, top_p=0.7)[1]), torch.tensor(0.5))


def test_top_k_keeps_the_likeliest_and_min_p_those_near_them():
    assert choices(top_k=1) == {2}
    assert choices(top_k=3) == {2, 3, 4}
    assert choices(min_p=0.29) == {2, 3, 4}
    assert choices(min_p=0.31) == {2, 4}
    torch.testing.assert_close(torch.tensor(drawn(0.0, top_k=1)[1]), torch.tensor(0.5))


def test_top_p_counts_what_the_others_have_left():
    # Of 0.5, 0.25 and 0.15, three quarters are 0.675: two tokens.
    assert choices(top_k=3, top_p=0.75) == {2, 4}
    assert choices(top_k=4, top_p=0.76) == {2, 3, 4}
    assert choices(min_p=0.31, top_p=0.6) == {2}


def test_a_bias_is_added_and_penalties_count_the_answer():
    how = Sampling(
        max_tokens=8,
        logit_bias={1: 4.0, 4: -100.0},
        presence_penalty=0.5,
        frequency_penalty=0.25,
        top_logprobs=5,
    )
    found = one_draw(how, prompt=(3, 3, 2, 2, 0), num_sampled=3)
    # Of the prompt, 2, 2 and 0 are part of the answer; 3 is not.
    wanted = [1.0 - 0.75, 3.0, 3.0 - 1.0, 0.5, -98.0]
    torch.testing.assert_close(alternatives(found), told(wanted))


def test_what_was_repeated_counts_from_the_prompt_on():
    how = Sampling(max_tokens=8, repetition_penalty=2.0, top_logprobs=5)
    found = one_draw(how, prompt=(1, 2))
    torch.testing.assert_close(alternatives(found), told([1.0, -2.0, 1.5, 0.5, 2.0]))


def test_penalties_grow_with_what_is_sampled():
    how = Sampling(max_tokens=8, temperature=0.0, frequency_penalty=2.0)
    tokens = [one_draw(how, times=times).token_ids[0] for times in (1, 2, 3, 4)]
    assert tokens == [2, 4, 0, 2]  # 3, 2, then 1 as the best of (1, -1, 1, 0.5, 0), then 1.


def test_alternatives_come_likeliest_first_with_the_logprobs_of_the_distribution():
    found = one_draw(Sampling(max_tokens=8, temperature=0.5, top_k=1, top_logprobs=3))
    wanted = told([2.0, -2.0, 6.0, 1.0, 4.0])
    assert [token for token, _ in found.tops[0]] == [2, 4, 0]
    torch.testing.assert_close([one for _, one in found.tops[0]], [wanted[n] for n in (2, 4, 0)])
    assert found.logprobs[0] == found.tops[0][0][1]


def test_a_seeded_request_draws_the_same_beside_anybody():
    logits = torch.randn(8, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    seeded = Sampling(max_tokens=8, seed=5)

    def tokens(sampler: Sampler, slot: int) -> list[int]:
        sampler.prepare(slot, seeded, room=8)
        rows = [[slot, (slot + 1) % 4] for _ in range(8)]
        pairs = logits.unsqueeze(1).expand(8, 2, VOCAB_SIZE)
        draws = [sampler.draw(pairs[n], row, counts=[n, n]) for n, row in enumerate(rows)]
        return [found.token_ids[0] for found in draws]

    first, other = Sampler(4, 8, seed=1), Sampler(4, 8, seed=2)
    other.prepare(0, Sampling(max_tokens=8, temperature=0.3, top_p=0.5), room=8)
    assert tokens(first, 2) == tokens(other, 3)


def test_a_slot_forgets_how_it_sampled_before():
    sampler = Sampler(1, 4, seed=0)
    before = {"logit_bias": {1: 9.0}, "top_logprobs": 2, "top_k": 1, "min_p": 0.9}
    sampler.prepare(0, Sampling(max_tokens=4, temperature=0.0, top_p=0.1, **before), room=4)
    sampler.prepare(0, Sampling(max_tokens=4, seed=3), room=4)
    plain = Sampler(1, 4, seed=0)
    plain.prepare(0, Sampling(max_tokens=4, seed=3), room=4)
    for count in range(4):
        found = [one.draw(LOGITS, [0], counts=[count]) for one in (sampler, plain)]
        assert found[0] == found[1]
