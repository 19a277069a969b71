"""Tiny tokenizers with the chat templates that TRL ships, and their models' control tokens."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("trl")

CONTROL = re.compile(
    r"<\|[\w ]+\|>|<\uff5c[^\uff5c]+\uff5c>|<(?:start|end)_of_(?:turn|utterance)>"
    r"|\[gMASK\]|<sop>|<\|?turn\|?>|\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\]"
)
WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>")
"""Tokens of their own in most of these models, and no control tokens."""
ENDS = {
    "gptoss": ["<|return|>", "<|call|>"],
    "glm4moe": ["<|user|>", "<|observation|>"],
    "llama3_1": ["<|eot_id|>", "<|eom_id|>"],
}
"""Of the generation config, where the template alone does not say it."""


def shipped() -> list[str]:
    """The names of TRL's templates."""
    found = files("trl").joinpath("chat_templates").iterdir()
    return sorted(one.name.removesuffix(".jinja") for one in found if one.name.endswith(".jinja"))


def source(name: str) -> str:
    return files("trl").joinpath("chat_templates", f"{name}.jinja").read_text()


def a_family(path: Path, name: str, *, template: str | None = None) -> Path:
    """A model's directory without weights: a small vocabulary that merges as real ones do."""
    text = source(name) if template is None else template
    control = sorted({*CONTROL.findall(text), "<s>", "</s>", "<pad>"})
    ends = ENDS.get(name.removesuffix("_training"), [])
    file = tokenizers.Tokenizer(tokenizers.models.BPE())
    file.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    file.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=sorted(alphabet), show_progress=False
    )
    file.train_from_iterator([text, "it is warm here, be kind"], trainer)
    file.add_tokens([word for word in WORDS if word in text])
    file.add_special_tokens([*control, *[end for end in ends if end not in control]])
    path.mkdir(parents=True, exist_ok=True)
    file.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(text)
    (path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>"})
    )
    if ends:
        ids = [file.token_to_id(end) for end in ends]
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    return path
