"""GRPO's loss and gradient equal TRL's on the same tensors.

`trl_grpo.json` is what TRL 1.16 said; it is asked again.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from artangram.train.advantages import group_relative  # noqa: E402 - only where torch is there
from artangram.train.losses import BatchShare, Tokens, entropy_bonus, policy_loss  # noqa: E402
from artangram.train.lossrules import LossParts, Mean, rule_of  # noqa: E402

HERE = Path(__file__).parent
CASES = {
    "sequences": {"mean": Mean.SEQUENCES},
    "tokens": {},
    "budget": {"mean": Mean.BUDGET},
    "kl": {"kl": 0.04},
    "stale": {},
    "entropy": {},
}


def said():
    return json.loads((HERE / "trl_grpo.json").read_text())


def ours(given, name):
    mask = torch.tensor(given["mask"]).bool()
    rows = {
        k: torch.tensor(v)[mask]
        for k, v in given.items()
        if k not in ("rewards", "mask", "advantages")
    }
    sequence = mask.nonzero()[:, 0]
    row = Tokens(
        logprobs=rows["new"].requires_grad_(),
        old=rows["old"],
        behaviour=rows["sampling"] if name == "stale" else rows["old"],
        advantages=torch.tensor(group_relative(given["rewards"]))[sequence],
        sequence=sequence,
        stale=torch.ones_like(sequence),
        entropy=rows["entropy"],
        reference=rows["reference"],
    )
    share = BatchShare(tokens=int(mask.sum()), sequences=len(mask), budget=mask.shape[1])
    parts = LossParts(**{"mean": Mean.TOKENS, **CASES[name]})
    loss = policy_loss(row, share, rule_of(parts)).loss
    if name == "entropy":
        loss = loss + entropy_bonus(row, share, weight=0.03)
    loss.backward()
    return loss.item(), row.logprobs.grad, mask


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_equal_those_of_trl(name):
    reference = said()
    loss, gradient, mask = ours(reference["inputs"], name)
    assert loss == pytest.approx(reference["cases"][name]["loss"], abs=1e-5)
    theirs = torch.tensor(reference["cases"][name]["gradient"])[mask]
    assert torch.allclose(gradient, theirs, atol=1e-5)


def test_trl_still_says_what_the_file_says(tmp_path):
    path = tmp_path / "now.json"
    subprocess.run(
        [sys.executable, HERE / "trl_reference.py", path], check=True, capture_output=True
    )
    now, then = json.loads(path.read_text())["cases"], said()["cases"]
    assert {name: case["loss"] for name, case in now.items()} == pytest.approx(
        {name: case["loss"] for name, case in then.items()}, abs=1e-6
    )
