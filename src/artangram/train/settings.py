"""What training is told; needs no torch, so that plans can be read without it."""

from msgspec import field, structs

from artangram.core.errors import BadInput
from artangram.train.lossrules import (
    NAMES,
    Correction,
    LossParts,
    LossRule,
    Mean,
    Overlong,
    Scale,
    rule_of,
)

__all__ = ["NAMES", "Correction", "LossParts", "LossRule", "Mean", "Overlong", "Scale"]

BACKEND_NAMES = ("ddp", "fsdp")


class TrainSettings(LossParts, frozen=True, kw_only=True):
    """Hyperparameters; `docs/training.md` says when to change them."""

    loss: str = "grpo"
    """`grpo`, `dr_grpo`, `dapo`, `gspo`, `cispo`, `ppo`, `reinforce++` or `distillation`; a part of
    it that is unsaid below is the one that was published with it (`lossrules.RECIPES`)."""
    kl: float = 0.0
    lr: float = 5e-4
    entropy: float = 0.003
    """More keeps choices open, and blurs what was copied exactly."""
    fade_steps: int = 0
    """Steps over which `lr` falls to a tenth and `entropy` to 0; 0 keeps both."""
    warmup_steps: int = 0
    """Steps over which `lr` rises to its value."""
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    """Of AdamW."""
    max_norm: float = 1.0
    """A longer gradient is cut to this length."""
    budget: int = 0
    """Tokens that `mean: budget` divides by; 0 takes the longest attempt of the batch."""
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
    tasks: dict[str, LossParts] = field(default_factory=dict)
    """What differs for single tasks; a run's file has it under `train` of the task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend not in BACKEND_NAMES:
            problem = f"{self.backend!r} is not a backend"
            raise BadInput("backend", problem, f"say {' or '.join(BACKEND_NAMES)}")
        if self.device not in ("cpu", "cuda"):
            raise BadInput("device", f"{self.device!r} is not a device", "use cpu or cuda")
        for name in ("epochs", "max_tokens", "processes", "lr", "max_norm"):
            if not getattr(self, name) > 0:
                problem = f"{getattr(self, name)} is not positive"
                raise BadInput(name, problem, "say more than 0")
        for name in ("entropy", "fade_steps", "warmup_steps", "weight_decay", "budget"):
            if not getattr(self, name) >= 0:
                raise BadInput(name, f"{getattr(self, name)} is negative", "say 0 or more")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise BadInput("betas", f"{list(self.betas)} are no betas", "say numbers from 0 to 1")
        self.rule("")
        for task in self.tasks:
            self._check_task(task)

    def rule(self, task: str) -> LossRule:
        """The loss of a task. Raises `BadInput` if its parts do not fit."""
        own = self.tasks.get(task, LossParts())
        parts = {
            key: getattr(self, key) if (value := getattr(own, key)) is None else value
            for key in LossParts.__struct_fields__
        }
        if own.loss is not None and own.loss != self.loss:
            # Parts of the run's own loss are no parts of another one.
            parts = {**structs.asdict(own), "kl": own.kl if own.kl is not None else self.kl}
        return rule_of(LossParts(**parts))

    @property
    def has_reference(self) -> bool:
        """A loss of some task compares with the model that the run began with."""
        return any(self.rule(task).kl for task in ("", *self.tasks))

    def _check_task(self, task: str) -> None:
        try:
            self.rule(task)
        except BadInput as error:
            raise error.within(f"tasks.{task}.train") from error
        if "distillation" in {self.loss, self.tasks[task].loss} and self.tasks[task].loss:
            fix = "give all tasks of a run that loss, or none"
            raise BadInput(f"tasks.{task}.train.loss", "mixes distillation with others", fix)
