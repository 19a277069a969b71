"""Small language models and their vocabularies, as files and as torch modules.

What is named here needs no torch. `models.llama`, `models.directory` and `models.causal` do.
"""

from artangram.models.config import ModelConfig, load_config, save_config
from artangram.models.hftokenizer import HfTokenizer
from artangram.models.loading import load_tokenizer
from artangram.models.tokenizer import ASSISTANT, ROLES, SYSTEM, TOOL, USER, Message, Tokenizer
from artangram.models.vocabulary import Vocabulary

__all__ = [
    "ASSISTANT",
    "ROLES",
    "SYSTEM",
    "TOOL",
    "USER",
    "HfTokenizer",
    "Message",
    "ModelConfig",
    "Tokenizer",
    "Vocabulary",
    "load_config",
    "load_tokenizer",
    "save_config",
]
