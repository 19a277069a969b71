"""How the callers of a session may sample, where that matters for training.

Training scores a token as it was sampled: at its temperature, from all tokens. So a session that
trains refuses what the trainer could not score, unless the run's own settings replace it.
"""

from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import SHAPING, Sampling

_FIX = "leave it out, or put `sampling: run` into the task, which replaces it"
_REPLACED = tuple(name for name in SHAPING if name != "json_schema")
"""By the run's own settings. An answer's form is not: the agent relies on it."""


class SamplingRules(Struct, frozen=True, kw_only=True):
    """See the module. The default lets callers do as they like."""

    temperature: float = 1.0
    """Of requests that name none."""
    is_enforced: bool = False
    """Every request samples at that temperature, from all tokens, whatever it says."""
    trains: bool = False
    """Refuse what training could not score."""
    most_tokens: int = 0
    """Of one answer, whatever the request says; 0 sets no limit."""

    def applied(self, sampling: Sampling) -> Sampling:
        """What a request comes to. Raises `BadInput` for one that could not be trained on."""
        if self.is_enforced:
            plain = Sampling(max_tokens=1)
            replaced = {name: getattr(plain, name) for name in _REPLACED}
            sampling = structs.replace(sampling, temperature=self.temperature, **replaced)
        if self.most_tokens and sampling.max_tokens > self.most_tokens:
            sampling = structs.replace(sampling, max_tokens=self.most_tokens)
        if self.trains:
            _refuse_untrainable(sampling)
        return sampling


def _refuse_untrainable(sampling: Sampling) -> None:
    if sampling.temperature == 0:
        raise BadInput("temperature", "0 cannot be trained on: nothing is sampled", _FIX)
    for name in sampling.shaping:
        if name == "json_schema":
            problem = "cannot be trained on: it forbids tokens that the model would sample"
            fix = "ask for JSON in the prompt, and let the reward judge what comes"
            raise BadInput("response_format", problem, fix)
        raise BadInput(name, f"{getattr(sampling, name)} cannot be trained on", _FIX)
