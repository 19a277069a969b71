"""A model's directory: what is saved is loaded, and what is broken is refused whole."""

import json
from pathlib import Path

import pytest
import torch
from models_support import a_model, some_sequences

from artangram.core.errors import BadInput
from artangram.models.config import load_config
from artangram.models.directory import load_model, load_weights, save_model, save_weights
from artangram.models.packed import pack


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_model_computes_the_same_when_loaded(tied: bool, tmp_path: Path):
    model = a_model(tied_embeddings=tied, num_heads=4, num_kv_heads=1, eos_id=2)
    save_model(model, tmp_path)
    loaded, packed = load_model(tmp_path), pack(some_sequences(6))
    assert loaded.config == model.config == load_config(tmp_path)
    assert torch.equal(loaded.hidden(packed), model.hidden(packed))


def test_weights_may_lie_in_several_buckets(tmp_path: Path):
    tensors = a_model().tensors()
    names = sorted(tensors)
    for number, half in enumerate((names[::2], names[1::2])):
        save_weights({name: tensors[name] for name in half}, tmp_path / f"{number}.safetensors")
    assert load_weights(tmp_path).keys() == tensors.keys()


@pytest.mark.parametrize("harm", ["missing", "strange", "size", "nan"])
def test_weights_that_do_not_fit_are_refused_and_none_is_taken(harm: str):
    model, tensors = a_model(seed=1), a_model(seed=2).tensors()
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    name = "model.norm.weight"
    match harm:
        case "missing":
            del tensors[name]
        case "strange":
            tensors["more"] = tensors[name]
        case "size":
            tensors[name] = tensors[name][:3]
        case "nan":
            tensors[name] = tensors[name] * torch.nan
    with pytest.raises(BadInput):
        model.assign(tensors)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.tensors().items())


def test_broken_files_are_refused(tmp_path: Path):
    with pytest.raises(BadInput, match=r"holds no \.safetensors"):
        load_weights(tmp_path)
    save_model(a_model(), tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BadInput, match="publish the weights again"):
        load_model(tmp_path)


def test_a_bucket_of_another_version_is_refused(tmp_path: Path):
    save_model(a_model(), tmp_path)
    save_weights({"model.norm.weight": torch.ones(64)}, tmp_path / "old.safetensors")
    with pytest.raises(BadInput, match="one version per directory"):
        load_model(tmp_path)


LLAMA = {
    "model_type": "llama",
    "vocab_size": 9,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}


def test_what_a_file_does_not_say_follows_from_the_rest(tmp_path: Path):
    (tmp_path / "config.json").write_bytes(json.dumps(LLAMA | {"eos_token_id": [7, 8]}).encode())
    found = load_config(tmp_path)
    assert (found.num_kv_heads, found.head_dim, found.eos_id) == (2, 4, 7)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "saved model"),
        ('{"model_type": "gpt2"}', "is not 'llama'"),
        ('{"model_type": "llama"}', "missing required field `vocab_size`"),
        ('{"model_type": "llama", "vocab_size": "many"}', "vocab_size"),
        (LLAMA | {"num_attention_heads": 0}, "num_attention_heads"),
        (LLAMA | {"num_key_value_heads": 3}, "num_kv_heads: does not divide"),
        ('{"model_type": "llama", "hidden_act": "gelu"}', "hidden_act"),
        ('{"model_type": "llama", "rope_scaling": {"rope_type": "llama3"}}', "rope_type"),
    ],
)
def test_a_config_that_is_not_ours_is_refused(
    text: str | dict[str, object], problem: str, tmp_path: Path
):
    (tmp_path / "config.json").write_text(text if isinstance(text, str) else json.dumps(text))
    with pytest.raises(BadInput, match=problem):
        load_config(tmp_path)
