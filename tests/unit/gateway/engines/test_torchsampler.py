"""Tokens are drawn as asked, and their logprobs are those of what they were drawn from."""

import torch
from models_support import VOCAB_SIZE

from artangram.gateway.engines.protocol import Sampling
from artangram.gateway.engines.torchsampler import Sampler, sampled

PROBABILITIES = torch.tensor([0.1, 0.0, 0.5, 0.15, 0.25])
LOGITS = PROBABILITIES.log().unsqueeze(0)


def drawn(share: float, *, temperature: float = 1.0, top_p: float = 1.0) -> tuple[int, float]:
    tokens, logprobs = sampled(
        LOGITS,
        torch.tensor([share], dtype=torch.float64),
        temperatures=torch.tensor([temperature]),
        top_ps=torch.tensor([top_p]),
    )
    return int(tokens), float(logprobs.exp())


def test_a_token_is_the_one_at_its_share_of_probability():
    shares = [0.0, 0.0999, 0.1001, 0.5999, 0.6001, 0.7499, 0.7501, 1 - 2**-53]
    assert [drawn(share)[0] for share in shares] == [0, 0, 2, 2, 3, 3, 4, 4]


def test_tokens_come_as_often_as_they_are_likely():
    uniforms = torch.rand(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tokens, _ = sampled(LOGITS.expand(20_000, -1), uniforms)
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
    shares = [number / 100 for number in range(100)]
    assert {drawn(share, top_p=0.7)[0] for share in shares} == {2, 4}
    assert {drawn(share, top_p=0.5)[0] for share in shares} == {2}
    torch.testing.assert_close(torch.tensor(drawn(0.0, top_p=0.7)[1]), torch.tensor(0.5))


def test_a_seeded_request_draws_the_same_beside_anybody():
    logits = torch.randn(8, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    seeded = Sampling(max_tokens=8, seed=5)

    def tokens(sampler: Sampler, slot: int) -> list[int]:
        sampler.prepare(slot, seeded, room=8)
        rows = [[slot, (slot + 1) % 4] for _ in range(8)]
        pairs = logits.unsqueeze(1).expand(8, 2, VOCAB_SIZE)
        draws = [sampler.draw(pairs[n], row, counts=[n, n]) for n, row in enumerate(rows)]
        return [found[0] for found, _ in draws]

    first, other = Sampler(4, 8, seed=1), Sampler(4, 8, seed=2)
    other.prepare(0, Sampling(max_tokens=8, temperature=0.3, top_p=0.5), room=8)
    assert tokens(first, 2) == tokens(other, 3)


def test_a_slot_forgets_how_it_sampled_before():
    sampler = Sampler(1, 4, seed=0)
    sampler.prepare(0, Sampling(max_tokens=4, temperature=0.0, top_p=0.1), room=4)
    sampler.prepare(0, Sampling(max_tokens=4, seed=3), room=4)
    plain = Sampler(1, 4, seed=0)
    plain.prepare(0, Sampling(max_tokens=4, seed=3), room=4)
    for count in range(4):
        found = [one.draw(LOGITS, [0], counts=[count]) for one in (sampler, plain)]
        assert found[0] == found[1]
