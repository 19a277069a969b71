"""The loader of the similarity judge. A zygote imports this module, and torch with it.

Reading a vocabulary takes longer than all else in a restore, and fine-tunes share the packaged one:
so that is read on import, once for all restores.
"""

from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from artangram.core.errors import BadInput
from artangram.services.shipped.bert import Bert, mean_over_tokens
from artangram.services.shipped.similarity import FILES, packaged

MOST_TOKENS = 256
"""What the model was trained on; the rest of a text is not read."""


def load(files: list[Path]) -> "Similarity":
    """The judge, its weights mapped."""
    weights, vocabulary, described = files
    config = msgspec.json.decode(described.read_bytes(), type=dict[str, Any])
    model = Bert(
        load_file(weights),
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
    )
    known = _KNOWN.get(vocabulary.read_bytes())
    return Similarity(model, _tokenizer(vocabulary) if known is None else known)


class Similarity:
    """Embeds texts, and compares them."""

    def __init__(self, model: Bert, tokenizer: Any) -> None:
        self._model = model
        self._tokenizer = tokenizer

    def predict(self, payloads: list[dict[str, str]]) -> list[dict[str, float]]:
        texts = [payload[key] for key in ("text", "reference") for payload in payloads]
        first, second = self._embedded(texts).chunk(2)
        scores = (first * second).sum(dim=1).clamp(-1.0, 1.0)  # Rounded, it may be 1.0000001.
        return [{"score": score} for score in scores.tolist()]

    def _embedded(self, texts: list[str]) -> torch.Tensor:
        """One vector of length one per text."""
        encoded = self._tokenizer.encode_batch(texts)
        token_ids = torch.tensor([each.ids for each in encoded])
        mask = torch.tensor([each.attention_mask for each in encoded], dtype=torch.bool)
        with torch.inference_mode():
            return mean_over_tokens(self._model(token_ids, mask), mask)


def _tokenizer(vocabulary: Path) -> Any:
    """Word pieces from the plain list: twice as fast to load as the file that says it all."""
    found: Any = Tokenizer(WordPiece.from_file(str(vocabulary), unk_token="[UNK]"))
    found.normalizer = BertNormalizer(lowercase=True)
    found.pre_tokenizer = BertPreTokenizer()
    end, begin = ((mark, found.token_to_id(mark)) for mark in ("[SEP]", "[CLS]"))
    found.post_processor = BertProcessing(end, begin)
    found.enable_truncation(MOST_TOKENS)
    found.enable_padding(pad_id=found.token_to_id("[PAD]"), pad_token="[PAD]")
    return found


def _packaged() -> dict[bytes, Any]:
    """The tokenizer of the packaged vocabulary, if it is installed."""
    try:
        vocabulary = packaged() / FILES[1]
    except BadInput:
        return {}
    return {vocabulary.read_bytes(): _tokenizer(vocabulary)}


_KNOWN = _packaged()
