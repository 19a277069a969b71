"""Two processes that train together make the steps that one makes alone, and read its files."""

import os
import signal

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from msgspec import structs  # noqa: E402 - only where torch is there

from artangram.core.errors import BadInput  # noqa: E402
from artangram.models.directory import (  # noqa: E402
    load_causal,
    load_model,
    load_weights,
    save_model,
)
from artangram.train.learner import LearnerGone  # noqa: E402
from artangram.train.ranks import Ranks  # noqa: E402
from artangram.train.settings import BACKEND_NAMES, TrainSettings  # noqa: E402
from artangram.train.trainer import OPTIMISER_NAME, Trainer  # noqa: E402
from unit.train.attempts import VOCABULARY, a_group, a_model, even  # noqa: E402

# Few tokens a micro-batch: one process has a round more. The divergence from the first weights
# counts, so that a resumed trainer must know them.
SETTINGS = TrainSettings(min_samples=4, max_tokens=24, kl=0.1, fade_steps=10)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    save_model(a_model(), place)
    return place


@pytest.fixture
def groups():
    """An odd number of attempts, so that the processes do not have equally much to do."""
    return [a_group(a_model(), reward=even, seed=9 * size, size=size) for size in (4, 5)]


@pytest.fixture(scope="module")
def started(model, tmp_path_factory):
    """Trainers of two processes, started once: that takes seconds."""
    every = {}

    def start(backend):
        if backend not in every:
            settings = structs.replace(SETTINGS, processes=2, backend=backend)
            log = tmp_path_factory.mktemp("log") / "trainer.log"
            every[backend] = Ranks(model, settings, seed=0, log=log)
        return every[backend]

    yield start
    for one in every.values():
        one.close()


def stepped(learner, groups, place):
    """A step, saved in `place`."""
    report = learner.step(groups)
    place.mkdir()
    learner.save(place)
    return report


def same_state(one, other):
    """Weights and all that the optimiser remembers."""
    first, second = load_weights(one), load_weights(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.allclose(second[name], tensor, atol=1e-5), name
    first, second = (torch.load(place / OPTIMISER_NAME)["state"] for place in (one, other))
    assert first.keys() == second.keys()
    for name, found in first.items():
        for key, value in found.items():
            assert torch.allclose(second[name][key], value, rtol=1e-3, atol=1e-6), (name, key)
    return True


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_two_processes_and_one_make_the_same_steps_and_resume_each_other(
    tmp_path, model, groups, started, backend
):
    def place(name):
        return tmp_path / name

    alone, ranks = Trainer(load_model(model), SETTINGS), started(backend)
    for step in ("1", "2"):
        own = stepped(alone, groups, place(f"alone-{step}"))
        theirs = stepped(ranks, groups, place(f"ranks-{step}"))
        assert same_state(place(f"alone-{step}"), place(f"ranks-{step}"))
        assert (theirs.samples, theirs.tokens) == (own.samples, own.tokens)
        assert theirs.loss == pytest.approx(own.loss, abs=1e-5)
        assert theirs.grad_norm == pytest.approx(own.grad_norm, rel=1e-4)
        assert (ranks.version, alone.version) == (int(step), int(step))
    assert own.samples % 2, "both would have equally much to do"

    alone = Trainer(load_model(model), SETTINGS)
    alone.restore(place("ranks-1"))
    stepped(alone, groups, place("alone-after-ranks"))
    assert same_state(place("alone-after-ranks"), place("alone-2"))

    ranks.restore(place("alone-1"))
    assert ranks.version == 1
    stepped(ranks, groups, place("ranks-after-alone"))
    assert same_state(place("ranks-after-alone"), place("alone-2"))


@pytest.mark.parametrize("nth", [0, 1])
def test_the_oldest_token_is_found_in_whichever_process_it_is(groups, started, nth):
    ranks, attempts = started("ddp"), list(groups[0].trajectories)
    attempts[nth] = aged(attempts[nth], -7)
    report = ranks.step([structs.replace(groups[0], trajectories=tuple(attempts))])
    assert report.max_staleness == report.version - 1 + 7


def aged(trajectory, version):
    """The same attempt, as if that version had sampled it."""
    segments = [
        structs.replace(s, spans=tuple(structs.replace(v, version=version) for v in s.spans))
        for s in trajectory.segments
    ]
    return structs.replace(trajectory, segments=tuple(segments))


def test_a_model_of_transformers_in_parts_goes_on_from_the_files_of_one_process(tmp_path):
    transformers = pytest.importorskip("transformers", reason="its extra is not installed")
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        tie_word_embeddings=True,
    )
    model = tmp_path / "model"
    transformers.Qwen2ForCausalLM(config).save_pretrained(model)
    groups = [a_group(load_causal(model), reward=even, size=5)]
    alone = Trainer(load_causal(model), SETTINGS)
    for step in ("1", "2"):
        stepped(alone, groups, tmp_path / step)
    settings = structs.replace(SETTINGS, processes=2, backend="fsdp")
    ranks = Ranks(model, settings, seed=0, log=tmp_path / "log")
    try:
        ranks.restore(tmp_path / "1")
        stepped(ranks, groups, tmp_path / "resumed")
    finally:
        ranks.close()
    assert same_state(tmp_path / "resumed", tmp_path / "2")


def test_when_one_process_is_killed_all_are_gone_and_it_is_said(groups, started):
    ranks = started("ddp")
    os.kill(ranks.pids[1], signal.SIGKILL)
    with pytest.raises(LearnerGone, match="of the trainer ended"):
        ranks.step(groups)
    for pid in ranks.pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(LearnerGone, match="closed"):
        ranks.step(groups)


def test_what_the_first_process_cannot_write_is_an_error_of_the_owner(tmp_path, started):
    with pytest.raises(OSError, match="could not be written"):
        started("fsdp").save(tmp_path / "nowhere")


def test_a_missing_model_is_said_plainly(tmp_path):
    settings = structs.replace(SETTINGS, processes=2)
    with pytest.raises(BadInput, match="nowhere"):
        Ranks(tmp_path / "nowhere", settings, seed=0, log=tmp_path / "log")
