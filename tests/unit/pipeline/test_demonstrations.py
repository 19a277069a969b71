"""Conversations of files become what a model imitates; the verb learns them."""

import gzip
import json

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from families_support import a_family  # noqa: E402

from artangram.core.errors import BadInput  # noqa: E402
from artangram.models import HfTokenizer  # noqa: E402
from artangram.models.config import ModelConfig  # noqa: E402
from artangram.models.directory import load_model, save_model  # noqa: E402
from artangram.models.llama import Llama  # noqa: E402
from artangram.models.vocabulary import Vocabulary  # noqa: E402
from artangram.pipeline.demonstrations import read_demonstrations  # noqa: E402

WORDS = Vocabulary(["lemon", "lime", "yellow", "green", "why", "sour"])
ROUND = [
    {"role": "user", "content": "lemon"},
    {"role": "assistant", "content": "yellow"},
    {"role": "user", "content": "why"},
    {"role": "assistant", "content": "sour"},
]
TOOL = {"type": "function", "function": {"name": "weigh", "parameters": {"type": "object"}}}


def a_file(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(*paths, tokenizer=WORDS, max_context=64, min_reward=1.0):
    return read_demonstrations(paths, tokenizer, max_context=max_context, min_reward=min_reward)


def imitated(one, tokenizer=WORDS):
    return tokenizer.decode([one.token_ids[place] for place in one.imitated])


def test_what_the_assistant_says_is_imitated_with_its_ends(tmp_path):
    (one,) = read(a_file(tmp_path / "a.jsonl", {"messages": ROUND})).demonstrations
    assert imitated(one) == "yellow sour"
    assert [one.token_ids[place] for place in one.imitated].count(WORDS.eos_id) == 2
    assert one.token_ids[: one.imitated[0]] == WORDS.first(_chat("lemon"))


def _chat(text):
    from artangram.models.tokenizer import USER, ChatInput, Message

    return ChatInput([Message(USER, text)])


def test_of_a_run_the_sampled_tokens_of_good_attempts_are_imitated(tmp_path):
    given, said = WORDS.first(_chat("lime")), (*WORDS.encode("green"), WORDS.eos_id)
    parts = [
        {"is_sampled": False, "text": WORDS.decode(given), "token_ids": given},
        {"is_sampled": True, "text": "green", "token_ids": said},
    ]
    lines = [{"conversations": [parts], "reward": reward} for reward in (1.0, 0.2)]
    path = tmp_path / "transcripts.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    found = read(path)
    (one,) = found.demonstrations
    assert (one.token_ids, one.imitated) == ((*given, *said), (len(given), len(given) + 1))
    assert found.num_low_reward == 1


def test_calls_are_imitated_as_the_template_writes_them(tmp_path):
    tokenizer = HfTokenizer(a_family(tmp_path, "qwen3"))
    call = {"id": "1", "function": {"name": "weigh", "arguments": '{"what": "it"}'}}
    messages = [
        {"role": "user", "content": "how heavy?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "1"},
        {"role": "assistant", "content": "three"},
    ]
    path = a_file(tmp_path / "a.jsonl", {"messages": messages, "tools": [TOOL]})
    (one,) = read(path, tokenizer=tokenizer, max_context=4096).demonstrations
    said = tokenizer.spelled([one.token_ids[place] for place in one.imitated])
    assert '{"name": "weigh", "arguments": {"what": "it"}}' in said
    assert said.endswith("three<|im_end|>")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", r"a.jsonl:1: "),
        ('{"text": "x"}', "a.jsonl:1: has no messages"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "without having been asked"),
        ('{"messages": [{"role": "user", "content": "lemon"}]}', "nothing to imitate"),
        (json.dumps({"messages": ROUND, "reward": 0.5}), "best reward of 1 attempts is 0.5"),
        (
            '{"conversations": [[{"is_sampled": true, "text": "lime", "token_ids": [9]}]], '
            '"reward": 1.0}',
            "mean another text",
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(tmp_path, line, problem):
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(BadInput, match=problem):
        read(path)


def test_what_does_not_fit_into_the_context_is_counted(tmp_path):
    short = {"messages": ROUND[:2]}
    found = read(a_file(tmp_path / "a.jsonl", short, {"messages": ROUND}), max_context=6)
    assert (len(found.demonstrations), found.num_too_long) == (1, 1)


def test_the_verb_makes_a_model_that_says_what_was_shown(tmp_path, run):
    config = ModelConfig(vocab_size=WORDS.vocab_size, max_context=32, eos_id=WORDS.eos_id)
    save_model(Llama(config, seed=0), tmp_path / "base")
    WORDS.save(tmp_path / "base")
    path = a_file(tmp_path / "a.jsonl", {"messages": ROUND})
    options = ("--steps", "40", "--batch", "2", "--lr", "0.005", "--json", "-")
    told = run("warmup", tmp_path / "base", path, "--out", tmp_path / "warm", *options)
    assert told.code == 0, told.err
    assert told.json["loss"] < 0.2 * told.json["loss_before"]
    prompt = WORDS.first(_chat("lemon"))
    logits = load_model(tmp_path / "warm").slots(1, 32).extend([0], [prompt])
    assert WORDS.decode([int(logits[0].argmax())]) == "yellow"
    again = run("warmup", tmp_path / "base", path, "--out", tmp_path / "warm")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "exists; name a directory that does not" in again.err


def test_a_file_that_is_missing_is_said_in_one_line(tmp_path, run):
    config = ModelConfig(vocab_size=WORDS.vocab_size, max_context=32, eos_id=WORDS.eos_id)
    save_model(Llama(config, seed=0), tmp_path / "base")
    WORDS.save(tmp_path / "base")
    told = run("warmup", tmp_path / "base", tmp_path / "no.jsonl", "--out", tmp_path / "warm")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "No such file" in told.err
