"""What training is told; needs no torch, so that plans can be read without it."""

from enum import StrEnum

from msgspec import Struct

from artangram.core.errors import BadInput

LOSS_NAMES = ("grpo", "ppo", "reinforce++", "distillation")
KL_LOSSES = ("grpo", "reinforce++")
BACKEND_NAMES = ("ddp", "fsdp")


class Mean(StrEnum):
    """What weighs the same when the tokens of a batch become one number."""

    TOKENS = "tokens"
    """Every token (DAPO)."""
    SEQUENCES = "sequences"
    """Every attempt, long or short (GRPO as published): tasks with short answers learn, too."""
    BUDGET = "budget"
    """Every token, against the most tokens that the attempts might have had (Dr. GRPO)."""


class TrainSettings(Struct, frozen=True, kw_only=True):
    """Hyperparameters; `docs/training.md` says when to change them."""

    loss: str = "grpo"
    """`grpo`, `ppo`, `reinforce++` or `distillation`."""
    lr: float = 5e-4
    clip_low: float = 0.2
    clip_high: float = 0.28
    cap: float = 2.0
    """The largest importance weight of a stale token."""
    kl: float = 0.0
    entropy: float = 0.003
    """More keeps choices open, and blurs what was copied exactly."""
    fade_steps: int = 0
    """Steps over which `lr` falls to a tenth and `entropy` to 0; 0 keeps both."""
    mean: Mean = Mean.SEQUENCES
    epochs: int = 1
    """Passes over each batch; the clip bounds how far they go together."""
    max_tokens: int = 8192
    """In one micro-batch."""
    min_samples: int = 24
    """Fewer useful samples than this are too noisy for a step."""
    processes: int = 1
    """That train together, each on its part of the batch."""
    backend: str = "ddp"
    """Of several processes: `ddp`, a copy of the model each, or `fsdp`, a part of it each."""
    device: str = "cpu"
    """Or `cuda`: a GPU for each process."""

    def __post_init__(self) -> None:
        if self.loss not in LOSS_NAMES:
            raise BadInput(
                "loss", f"{self.loss!r} is not a loss", f"use one of {', '.join(LOSS_NAMES)}"
            )
        if self.backend not in BACKEND_NAMES:
            problem = f"{self.backend!r} is not a backend"
            raise BadInput("backend", problem, f"say {' or '.join(BACKEND_NAMES)}")
        if self.device not in ("cpu", "cuda"):
            raise BadInput("device", f"{self.device!r} is not a device", "use cpu or cuda")
        for field in ("epochs", "max_tokens", "processes", "lr", "cap"):
            if not getattr(self, field) > 0:
                problem = f"{getattr(self, field)} is not positive"
                raise BadInput(field, problem, "say more than 0")
        for field in ("clip_low", "clip_high", "kl", "entropy", "fade_steps"):
            if not getattr(self, field) >= 0:
                raise BadInput(field, f"{getattr(self, field)} is negative", "say 0 or more")
        if self.kl and self.loss not in KL_LOSSES:
            fix = f"say 0, or one of {', '.join(KL_LOSSES)}"
            raise BadInput("kl", f"{self.loss} has no such term", fix)
