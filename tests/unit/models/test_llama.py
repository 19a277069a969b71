"""The training path and the engine's path compute the same, and no sequence sees another."""

import pytest
import torch
from models_support import a_model, some_sequences

from artangram.core.errors import BadInput
from artangram.models.causal import score
from artangram.models.packed import pack

CONFIGS = {
    "default": {},
    "grouped": {"num_heads": 4, "num_kv_heads": 2, "num_layers": 1},
    "untied": {"tied_embeddings": False},
}


@pytest.mark.parametrize("fields", CONFIGS.values(), ids=CONFIGS.keys())
def test_appending_in_slots_gives_what_the_training_path_gives(fields: dict[str, int]):
    model = a_model(**fields)
    sequences = some_sequences(5, 17, 9, 30)
    packed = pack(sequences)
    expected = model.logits(model.hidden(packed))
    slots = model.slots(8, 40)
    where = [6, 1, 3, 0]
    slots.extend(where, [sequence[:3] for sequence in sequences])
    slots.extend(where[1:], [sequence[3:-1] for sequence in sequences[1:]])
    slots.extend(where[:1], [sequences[0][3:-1]])
    logits = slots.extend(where, [sequence[-1:] for sequence in sequences])
    ends = packed.starts + torch.tensor(packed.lengths) - 1
    torch.testing.assert_close(logits, expected[ends], atol=1e-5, rtol=0)


def test_few_slots_of_many_are_computed_alike():
    model = a_model()
    sequences = some_sequences(6, 4)
    slots = model.slots(32, 16)
    logits = slots.extend([30, 2], sequences)
    expected = model.logits(model.hidden(pack(sequences)))[[5, 9]]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_a_neighbour_that_is_computed_in_place_keeps_its_tokens():
    model = a_model()
    one, two, three = some_sequences(8, 8, 8)
    slots = model.slots(3, 8)
    slots.extend([0, 1, 2], [one[:7], two, three[:7]])
    slots.extend([0, 2], [one[7:], three[7:]])
    slots.cut(1, 7)
    logits = slots.extend([1], [two[7:]])
    expected = model.logits(model.hidden(pack([two])))[-1:]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_a_cut_slot_goes_on_from_there():
    model = a_model()
    one, other = some_sequences(6, 6)
    slots = model.slots(1, 8)
    slots.extend([0], [one])
    slots.cut(0, 2)
    logits = slots.extend([0], [other])
    expected = model.logits(model.hidden(pack([one[:2] + other])))[-1:]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_scores_are_those_of_each_sequence_alone():
    model = a_model()
    sequences = some_sequences(7, 2, 11)
    packed = pack(sequences)
    together = score(model, packed, at=packed.later_tokens())
    alone = [
        score(model, one, at=one.later_tokens()) for one in map(pack, map(lambda s: [s], sequences))
    ]
    torch.testing.assert_close(together.logprobs, torch.cat([one.logprobs for one in alone]))
    torch.testing.assert_close(together.entropy, torch.cat([one.entropy for one in alone]))


def test_scores_are_logprobs_of_the_tokens_that_follow():
    model = a_model()
    (sequence,) = some_sequences(5)
    packed = pack([sequence])
    every = torch.log_softmax(model.logits(model.hidden(packed)) / 2, dim=-1)
    scores = score(model, packed, at=torch.tensor([2, 4]), temperature=2.0)
    expected = torch.stack([every[1, sequence[2]], every[3, sequence[4]]])
    torch.testing.assert_close(scores.logprobs, expected)
    entropies = torch.distributions.Categorical(logits=every[[1, 3]]).entropy()
    torch.testing.assert_close(scores.entropy, entropies)


def test_gradients_reach_every_weight():
    model = a_model()
    packed = pack(some_sequences(4, 6))
    score(model, packed, at=packed.later_tokens()).logprobs.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_the_same_seed_makes_the_same_weights():
    first, same, other = (a_model(seed=seed).tensors() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_what_does_not_fit_is_refused():
    model = a_model(max_context=8)
    with pytest.raises(BadInput, match="within 8 tokens"):
        model.hidden(pack(some_sequences(9)))
    with pytest.raises(BadInput, match="at most 4 per slot"):
        model.slots(1, 4).extend([0], some_sequences(5))
    with pytest.raises(BadInput, match="at most 8"):
        model.slots(1, 9)
    with pytest.raises(BadInput, match="leave empty ones out"):
        pack([[]])
