"""Any causal model of transformers behind our contract, for those that `Llama` does not compute.

- transformers is optional, and imported when such a model is loaded.
- The engine's path keeps one cache per slot and runs them one after the other: right, not fast.
  vLLM is the engine for models of that size.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from artangram.core.errors import BadInput
from artangram.models.causal import refuse_unlike
from artangram.models.packed import Packed, pack


def load_huggingface(directory: Path) -> "HuggingFaceModel":
    """The model of a directory, in 32 bits. Raises `BadInput` when it cannot be loaded."""
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        fix = "pip install transformers"
        raise BadInput(str(directory), "needs transformers, which is missing", fix) from error
    try:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise BadInput(str(directory), str(error), "name a saved causal model") from error
    return HuggingFaceModel(model)


class HuggingFaceModel(nn.Module):
    """See `causal.CausalModel`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model.eval()  # Dropout would make sampled and trained tokens differ.
        self._head = model.get_output_embeddings()
        self.vocab_size = int(model.config.vocab_size)
        self.max_context = int(model.config.max_position_embeddings)
        self._refuse_other_heads()

    def hidden(self, packed: Packed) -> Tensor:
        token_ids = packed.rectangle(packed.token_ids)
        is_token = packed.rectangle(torch.ones_like(packed.token_ids))
        found = self._model.base_model(input_ids=token_ids, attention_mask=is_token)
        return packed.row(found.last_hidden_state)

    def logits(self, hidden: Tensor) -> Tensor:
        found: Tensor = self._head(hidden)
        return found

    def slots(self, num_slots: int, max_context: int) -> "HuggingFaceSlots":
        return HuggingFaceSlots(self._model, num_slots, max_context=max_context)

    def tensors(self) -> dict[str, Tensor]:
        """Those that are one under two names appear once."""
        return {name: tensor.detach() for name, tensor in self._model.named_parameters()}

    def assign(self, tensors: Mapping[str, Tensor]) -> None:
        own = self.tensors()
        # Not `state_dict`, at which a model that lies in parts takes back what it had gathered.
        every = [
            *self._model.named_parameters(remove_duplicate=False),
            *self._model.named_buffers(),
        ]
        shared = {name for name, _ in every} - own.keys()
        given = {name: tensor for name, tensor in tensors.items() if name not in shared}
        refuse_unlike(own, given)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(given[name])

    def _refuse_other_heads(self) -> None:
        """Some models bend the logits after the head: we would score what we did not sample."""
        probe = pack([[0, 1, 2]])
        with torch.no_grad():
            expected = self._model(input_ids=probe.token_ids.unsqueeze(0)).logits[0]
            if not torch.allclose(self.logits(self.hidden(probe)), expected, atol=1e-4):
                name = type(self._model).__name__
                raise BadInput("model", f"the logits of {name} are not its head's", "use vLLM")


class HuggingFaceSlots:
    """See `causal.CacheSlots`."""

    def __init__(self, model: Any, num_slots: int, *, max_context: int) -> None:
        self._model = model
        self._max_context = max_context
        self._caches: list[Any] = [None] * num_slots
        self.lengths = [0] * num_slots

    def cut(self, slot: int, length: int) -> None:
        too_many = self.lengths[slot] - length
        if too_many <= 0:
            return
        if length:
            self._caches[slot].crop(-too_many)
        else:
            self._caches[slot] = None
        self.lengths[slot] = length

    @torch.inference_mode()
    def extend(self, slots: Sequence[int], tokens: Sequence[Sequence[int]]) -> Tensor:
        return torch.cat([self._appended(*one) for one in zip(slots, tokens, strict=True)])

    def _appended(self, slot: int, tokens: Sequence[int]) -> Tensor:
        if self.lengths[slot] + len(tokens) > self._max_context:
            raise BadInput("tokens", "do not fit", f"at most {self._max_context} per slot")
        found = self._model(
            input_ids=torch.tensor([tokens]), past_key_values=self._caches[slot], use_cache=True
        )
        self._caches[slot] = found.past_key_values
        self.lengths[slot] += len(tokens)
        logits: Tensor = found.logits[:, -1]
        return logits
