"""Which losses there are, by name, and what each of them is made of; needs no torch.

A name stands for a published recipe: how advantages are scaled, where the clip is, what a mean is
over. Settings replace single parts of it, for a whole run or for one task.
"""

from enum import StrEnum

from msgspec import Struct

from artangram.core.errors import BadInput


class Mean(StrEnum):
    """What weighs the same when the tokens of a batch become one number."""

    TOKENS = "tokens"
    """Every token (DAPO)."""
    SEQUENCES = "sequences"
    """Every attempt, long or short (GRPO as published): tasks with short answers learn, too."""
    BUDGET = "budget"
    """Every token, against the most tokens that the attempts might have had (Dr. GRPO)."""


class Scale(StrEnum):
    """In which units an attempt is better than its siblings."""

    GROUP = "group"
    """Their deviation (GRPO)."""
    NONE = "none"
    """The reward's own (Dr. GRPO): hard and easy problems do not weigh more than others."""
    BATCH = "batch"
    """The deviation of the whole batch (REINFORCE++)."""


class CorrectionLevel(StrEnum):
    TOKEN = "token"
    SEQUENCE = "sequence"
    """One weight for a conversation: the product of its tokens' weights."""


class CorrectionMode(StrEnum):
    TRUNCATE = "truncate"
    """Weights outside `low` to `high` become these."""
    MASK = "mask"
    """Tokens whose weight is outside do not train."""
    OFF = "off"
    """Every token weighs 1, whatever sampled it."""


class Correction(Struct, frozen=True, kw_only=True):
    """Importance weights of all tokens: engine and trainer differ, in version and in precision."""

    level: CorrectionLevel = CorrectionLevel.TOKEN
    mode: CorrectionMode = CorrectionMode.TRUNCATE
    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.low <= 1 <= self.high:
            problem = f"{self.low:g} to {self.high:g} leaves out 1"
            raise BadInput("correction", problem, "say low of 0 to 1, and high of 1 or more")


class Overlong(Struct, frozen=True, kw_only=True):
    """What becomes of attempts that were cut short, and of long ones (DAPO)."""

    mask: bool = False
    """Attempts that were truncated do not train; their siblings are still compared with them."""
    limit: int = 0
    """Tokens from which on the whole penalty of 1 is taken off the reward; 0 takes off nothing."""
    buffer: int = 0
    """Tokens before the limit over which the penalty grows."""

    def __post_init__(self) -> None:
        if not 0 <= self.buffer <= self.limit:
            problem = f"a buffer of {self.buffer} does not fit into {self.limit} tokens"
            raise BadInput("overlong", problem, "say buffer of 0 to limit")

    def penalty(self, tokens: int) -> float:
        """What an attempt with this many sampled tokens loses."""
        if not self.limit or tokens <= self.limit - self.buffer:
            return 0.0
        return min(1.0, (tokens - self.limit + self.buffer) / max(self.buffer, 1))


class LossRule(Struct, frozen=True, kw_only=True):
    """A loss with all its parts."""

    kind: str
    """How a token's gain is computed; see `losses.SURROGATES`."""
    clip_low: float
    clip_high: float
    mean: Mean
    scale: Scale
    kl: float = 0.0
    turn_weight: float = 1.0
    """How much a reward of a turn counts beside that of the attempt."""
    correction: Correction = Correction()
    overlong: Overlong = Overlong()


_OFF = Correction(mode=CorrectionMode.OFF)

RECIPES = {
    "grpo": LossRule(
        kind="clip", clip_low=0.2, clip_high=0.28, mean=Mean.SEQUENCES, scale=Scale.GROUP
    ),
    "dr_grpo": LossRule(
        kind="clip", clip_low=0.2, clip_high=0.2, mean=Mean.BUDGET, scale=Scale.NONE
    ),
    "dapo": LossRule(
        kind="clip",
        clip_low=0.2,
        clip_high=0.28,
        mean=Mean.TOKENS,
        scale=Scale.GROUP,
        overlong=Overlong(mask=True),
    ),
    "gspo": LossRule(
        kind="sequence", clip_low=3e-4, clip_high=4e-4, mean=Mean.SEQUENCES, scale=Scale.GROUP
    ),
    "cispo": LossRule(
        kind="cispo", clip_low=0.0, clip_high=4.0, mean=Mean.TOKENS, scale=Scale.GROUP
    ),
    # Their ratios are against the weights that sampled: a correction would count that twice.
    "ppo": LossRule(
        kind="ppo",
        clip_low=0.2,
        clip_high=0.2,
        mean=Mean.SEQUENCES,
        scale=Scale.GROUP,
        correction=_OFF,
    ),
    "reinforce++": LossRule(
        kind="reinforce",
        clip_low=0.2,
        clip_high=0.2,
        mean=Mean.SEQUENCES,
        scale=Scale.BATCH,
        correction=_OFF,
    ),
}
"""By name. Parts as published, with clip-higher for GRPO, too."""

NAMES = (*RECIPES, "distillation")
COUPLED = ("ppo", "reinforce++")
KL_LOSSES = tuple(name for name in RECIPES if name not in ("ppo",))


class LossParts(Struct, frozen=True, kw_only=True):
    """Parts of a recipe that settings replace; `None` keeps the recipe's."""

    loss: str | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    mean: Mean | None = None
    scale: Scale | None = None
    kl: float | None = None
    turn_weight: float | None = None
    correction: Correction | None = None
    overlong: Overlong | None = None

    def __post_init__(self) -> None:
        if self.loss is not None and self.loss not in NAMES:
            raise BadInput("loss", f"{self.loss!r} is not a loss", f"use one of {', '.join(NAMES)}")
        for field in ("clip_low", "clip_high", "kl", "turn_weight"):
            if (getattr(self, field) or 0) < 0:
                raise BadInput(field, f"{getattr(self, field)} is negative", "say 0 or more")


def rule_of(parts: LossParts) -> LossRule:
    """The recipe that `loss` names, with what the other parts replace. Raises `BadInput`."""
    name = parts.loss or "grpo"
    recipe = RECIPES[name if name in RECIPES else "grpo"]
    if parts.kl and name not in KL_LOSSES:
        fix = f"say 0, or one of {', '.join(KL_LOSSES)}"
        raise BadInput("kl", f"{name} has no such term", fix)
    if name in COUPLED and parts.correction not in (None, _OFF):
        fix = f"leave it out: {name} compares with the weights that sampled by itself"
        raise BadInput("correction", f"{name} takes none", fix)
    given = {
        key: value
        for key in LossRule.__struct_fields__
        if key != "kind" and (value := getattr(parts, key)) is not None
    }
    return LossRule(**{**{key: getattr(recipe, key) for key in _FIELDS}, **given})


_FIELDS = LossRule.__struct_fields__
