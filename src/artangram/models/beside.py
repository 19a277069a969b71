"""What lies in a model's directory beside its weights: config, tokenizer, templates."""

import shutil
from pathlib import Path

_KINDS = (".json", ".jinja", ".model", ".txt")
_INDEX = ".index.json"


def copy_beside_weights(model: Path, directory: Path) -> None:
    """Make a directory that has the weights, or gets them, as readable as the model's."""
    for path in sorted(model.iterdir()):
        # An index names the files that weights were in; ours are in one.
        if path.is_file() and path.suffix in _KINDS and not path.name.endswith(_INDEX):
            shutil.copyfile(path, directory / path.name)
