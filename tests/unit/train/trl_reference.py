"""TRL's own GRPO loss on small tensors: `python trl_reference.py FILE` writes what it says.

The trainer's `_compute_loss` runs on a stand-in for its `self` that hands out the tensors, so the
arithmetic is TRL's, unchanged. The file is committed; the test makes it anew where TRL is there.
"""

import json
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch

BUDGET = 12
"""The most tokens of a completion."""
LENGTHS = (3, 7, 12, 5)
LOW, HIGH, CAP, BETA, ENTROPY = 0.2, 0.28, 2.0, 0.04, 0.03


def inputs() -> dict[str, torch.Tensor]:
    """Padded to `BUDGET`; far enough from each other that clipping and truncation both bite."""
    torch.manual_seed(7)
    shape = (len(LENGTHS), BUDGET)
    new = -torch.rand(shape) * 3
    old = new + torch.randn(shape) * 0.3
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0])
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    mask = torch.tensor([[1.0] * n + [0.0] * (BUDGET - n) for n in LENGTHS])
    return {
        "new": new,
        "old": old,
        "sampling": old + torch.randn(shape) * 0.5,
        "reference": new + torch.randn(shape) * 0.3,
        "entropy": torch.rand(shape) * 2,
        "mask": mask,
        "rewards": rewards,
        "advantages": advantages,
    }


def _trainer(given: dict[str, torch.Tensor], new: torch.Tensor, **options: Any) -> SimpleNamespace:
    args = SimpleNamespace(
        use_bias_correction_kl=False, delta=None, steps_per_generation=1, temperature=1.0
    )
    accelerator = SimpleNamespace(
        num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x, sync_gradients=True
    )
    settings = {
        "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": "token",
        "epsilon_low": LOW,
        "epsilon_high": HIGH,
        "beta": 0.0,
        "use_vllm": False,
        "vllm_importance_sampling_correction": True,
        "current_gradient_accumulation_steps": 1,
        "max_completion_length": BUDGET,
        "_entropy_bonus_enabled": False,
        "use_adaptive_entropy": False,
        "entropy_coef": ENTROPY,
        "model": SimpleNamespace(training=True),
        "_metrics": {"train": defaultdict(list)},
        **options,
    }
    return SimpleNamespace(
        args=args,
        accelerator=accelerator,
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, given["entropy"], None),
        **settings,
    )


CASES: dict[str, dict[str, Any]] = {
    "sequences": {"loss_type": "grpo"},
    "tokens": {"loss_type": "dapo"},
    "budget": {"loss_type": "dr_grpo"},
    "kl": {"loss_type": "dapo", "beta": BETA},
    "stale": {"loss_type": "dapo", "use_vllm": True},
    "entropy": {"loss_type": "dapo", "_entropy_bonus_enabled": True},
}


def answers() -> dict[str, Any]:
    """Loss and gradient of each case."""
    from trl import GRPOTrainer

    given, found = inputs(), {}
    for name, options in CASES.items():
        new = given["new"].clone().requires_grad_()
        ids = torch.zeros(given["mask"].shape, dtype=torch.long)
        batch = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": ids[:, :1] + 1,
            "completion_ids": ids,
            "completion_mask": given["mask"],
            "advantages": given["advantages"],
            "old_per_token_logps": given["old"],
            "ref_per_token_logps": given["reference"],
            "importance_sampling_ratio": (given["old"] - given["sampling"]).exp().clamp(max=CAP),
            "num_items_in_batch": given["mask"].sum(),
        }
        loss = GRPOTrainer._compute_loss(_trainer(given, new, **options), new, batch)
        loss.backward()
        found[name] = {"loss": loss.item(), "gradient": new.grad.tolist()}
    return found


def main(path: str) -> None:
    import trl

    tensors = {name: value.tolist() for name, value in inputs().items()}
    body = {"trl": trl.__version__, "inputs": tensors, "cases": answers()}
    with open(path, "w") as file:
        json.dump(body, file, indent=None)


if __name__ == "__main__":
    main(sys.argv[1])
