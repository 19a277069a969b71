"""Find out which kind of tokenizer lies in a model's directory."""

from pathlib import Path

import msgspec

from artangram.core.errors import BadInput
from artangram.models.hftokenizer import HfTokenizer
from artangram.models.tokenizer import Tokenizer
from artangram.models.vocabulary import FILE_NAME, Vocabulary


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a model's directory. Raises `BadInput` if it has none."""
    path = directory / FILE_NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(str(path), str(error), "save a tokenizer there first") from error
    return Vocabulary.load(directory) if "artangram_vocabulary" in found else HfTokenizer(directory)
