"""A model of transformers that knows how to answer, but not what: for `huggingface.yaml`.

A tiny Qwen2 with random weights is made here, so that nothing is downloaded. Any directory that
`AutoModelForCausalLM.from_pretrained` reads, with a `tokenizer.json`, can be the `model:` of a run.
"""

from pathlib import Path

import torch
from guessing import COLOURS, Guessing
from transformers import Qwen2Config, Qwen2ForCausalLM

from artangram.models.huggingface import HuggingFaceModel
from artangram.models.vocabulary import Vocabulary
from artangram.pipeline.warmup import demonstrations
from artangram.train.warmup import WarmupSettings, imitate

torch.set_num_threads(1)
torch.manual_seed(0)
words = Vocabulary(sorted({*COLOURS, *COLOURS.values()}))
model = Qwen2ForCausalLM(
    Qwen2Config(
        vocab_size=words.vocab_size,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        eos_token_id=words.eos_id,
    )
)
shown = demonstrations([Guessing(None)], words, seed=0)
imitate(HuggingFaceModel(model), shown, settings=WarmupSettings(steps=60, batch=16))
directory = Path(__file__).parent / "models" / "qwen2"
model.save_pretrained(directory)
words.save(directory)
