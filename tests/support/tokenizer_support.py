"""A tokenizer's file that has a token for each byte and merges nothing."""

from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")


def a_file(path: Path, *, markers: list[str]) -> Path:
    """Write it into the directory `path`; `markers` are its control tokens."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {character: number for number, character in enumerate(sorted(alphabet))}
    file = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    file.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    file.decoder = tokenizers.decoders.ByteLevel()
    file.add_special_tokens(markers)
    file.save(str(path / "tokenizer.json"))
    return path
