"""A teacher: the log-probability it gives to every token of a text, for distillation on-policy.

`{"token_ids": [...]}` is answered by `{"logprobs": [...]}`, one for each token but the first, given
all before it; `"temperature"` divides the logits first. Many teachers share devices.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from artangram.core.errors import BadInput
from artangram.core.ids import ServiceId
from artangram.services.service import Service

if TYPE_CHECKING:
    from torch import Tensor

    from artangram.models.causal import CausalModel


def teacher(name: str, directory: Path) -> Service:
    """The model saved in `directory` as a service."""
    weights = sorted(directory.glob("*.safetensors"))
    config = directory / "config.json"
    if not weights or not config.is_file():
        raise BadInput("directory", f"{directory} holds no model", "name one of a saved model")
    return Service(
        id=ServiceId(name),
        loader=f"{__name__}:load",
        weights=(str(config), *map(str, weights)),
        degrees=(1, 2),
        batch=16,
        leaves_nothing=True,
        example={"token_ids": [0, 1]},
    )


def load(files: list[Path]) -> "Teacher":
    """The teacher, with all its weights."""
    from artangram.models.config import load_config
    from artangram.models.directory import load_weights
    from artangram.models.llama import Llama

    config, *weights = files
    model = Llama(load_config(config.parent))
    tensors: dict[str, Tensor] = {}
    for path in {path.parent for path in weights}:
        tensors |= load_weights(path)
    model.assign(tensors)
    return Teacher(model)


class Teacher:
    """Scores many texts in one pass, without padding."""

    def __init__(self, model: "CausalModel") -> None:
        self._model = model

    def predict(self, payloads: list[dict[str, Any]]) -> list[dict[str, list[float]]]:
        """Texts of one temperature are scored together."""
        answers: dict[int, list[float]] = {}
        temperatures = {float(payload.get("temperature", 1.0)) for payload in payloads}
        for temperature in temperatures:
            ours = [
                index
                for index, payload in enumerate(payloads)
                if float(payload.get("temperature", 1.0)) == temperature
            ]
            texts = [payloads[index]["token_ids"] for index in ours]
            answers |= zip(ours, self._scored(texts, temperature), strict=True)
        return [{"logprobs": answers[index]} for index in range(len(payloads))]

    def _scored(self, texts: list[list[int]], temperature: float) -> list[list[float]]:
        import torch

        from artangram.models.causal import score
        from artangram.models.packed import pack

        packed = pack(texts)
        at = packed.later_tokens()
        with torch.inference_mode():
            found = score(self._model, packed, at=at, temperature=temperature).logprobs
        scores = iter(found.tolist())
        return [[next(scores) for _ in text[1:]] for text in texts]
