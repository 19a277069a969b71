"""transformers as the judge of our model, and as a model of ours."""

import warnings
from pathlib import Path

import pytest
import torch
from models_support import VOCAB_SIZE, a_model, some_sequences

from artangram.models.directory import load_causal, save_model
from artangram.models.huggingface import HuggingFaceModel, load_huggingface
from artangram.models.llama import Llama
from artangram.models.packed import pack

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # What its imports complain of is not ours.
    transformers = pytest.importorskip("transformers")


def a_gpt2(directory: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=VOCAB_SIZE, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=0
    )
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(directory)


@pytest.mark.parametrize("tied", [True, False])
def test_transformers_computes_our_saved_model_alike(tied: bool, tmp_path: Path):
    model = a_model(tied_embeddings=tied, num_heads=4, num_kv_heads=2)
    save_model(model, tmp_path)
    theirs, packed = load_huggingface(tmp_path), pack(some_sequences(12, 30))
    torch.testing.assert_close(
        model.logits(model.hidden(packed)), theirs.logits(theirs.hidden(packed)), atol=1e-5, rtol=0
    )
    assert model.tensors().keys() == theirs.tensors().keys()


def test_a_llama_is_ours_and_another_model_is_theirs(tmp_path: Path):
    save_model(a_model(), tmp_path / "llama")
    a_gpt2(tmp_path / "gpt2")
    assert isinstance(load_causal(tmp_path / "llama"), Llama)
    assert isinstance(load_causal(tmp_path / "gpt2"), HuggingFaceModel)


def test_another_model_appends_in_slots_alike(tmp_path: Path):
    a_gpt2(tmp_path)
    model = load_huggingface(tmp_path)
    one, two = some_sequences(9, 6)
    slots = model.slots(3, 16)
    slots.extend([2, 0], [one[:4], two])
    slots.cut(0, 3)
    logits = slots.extend([0, 2], [two[3:], one[4:]])
    expected = model.logits(model.hidden(pack([two, one])))[[5, 14]]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    slots.cut(2, 0)
    torch.testing.assert_close(slots.extend([2], [two]), expected[:1], atol=1e-5, rtol=0)


def test_another_model_takes_weights_whole(tmp_path: Path):
    a_gpt2(tmp_path)
    model, packed = load_huggingface(tmp_path), pack(some_sequences(5))
    doubled = {name: tensor * 2 for name, tensor in model.tensors().items()}
    before = model.hidden(packed)
    model.assign(doubled)
    assert not torch.allclose(model.hidden(packed), before)
    assert all(torch.equal(tensor, doubled[name]) for name, tensor in model.tensors().items())
