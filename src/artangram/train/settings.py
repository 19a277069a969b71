"""What training is told; needs no torch, so that plans can be read without it."""

from enum import StrEnum

from msgspec import Struct

from artangram.core.errors import BadInput

LOSS_NAMES = ("grpo", "ppo", "reinforce++", "distillation")


class Mean(StrEnum):
    """What weighs the same when the tokens of a batch become one number."""

    TOKENS = "tokens"
    """Every token (DAPO)."""
    SEQUENCES = "sequences"
    """Every attempt, long or short (GRPO as published): tasks with short answers learn, too."""
    BUDGET = "budget"
    """Every token, against the most tokens that the attempts might have had (Dr. GRPO)."""


class TrainSettings(Struct, frozen=True, kw_only=True):
    """What a person may turn; `docs/training.md` says when."""

    loss: str = "grpo"
    """`grpo`, `ppo`, `reinforce++` or `distillation`."""
    lr: float = 5e-4
    lr_steps: int = 0
    """The rate falls to a tenth over so many steps; 0 keeps it."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    cap: float = 2.0
    """The largest importance weight of a stale token."""
    kl: float = 0.0
    entropy: float = 0.003
    """More keeps choices open, and blurs what was copied exactly."""
    entropy_steps: int = 0
    """The bonus falls to nothing over so many steps; 0 keeps it."""
    mean: Mean = Mean.SEQUENCES
    epochs: int = 1
    """Passes over each batch; the clip bounds how far they go together."""
    max_tokens: int = 8192
    """In one micro-batch."""
    min_samples: int = 24
    """Fewer useful samples than this are too noisy for a step."""
    grad_norm: float = 1.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.loss not in LOSS_NAMES:
            raise BadInput("loss", f"{self.loss!r} is none", f"say one of {', '.join(LOSS_NAMES)}")
        if self.epochs < 1 or self.max_tokens < 1 or not self.lr > 0:
            raise BadInput("train", "epochs, max_tokens or lr is not positive", "say 1 or more")
