"""A small reward model of our own: is this text intact Python, or was it damaged?

`{"text": ...}` is answered by `{"reward": log-odds}`; above zero means intact. It is a convolution
over bytes, trained from a seed in seconds on lines of the standard library and damaged copies of
them: `python -m artangram.services.shipped.reward FILE` makes the weights.
"""

import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artangram.core.ids import ServiceId
from artangram.services.service import Service

if TYPE_CHECKING:
    from torch import Tensor

LENGTH = 64
"""Bytes of a text that are read."""

_SOURCES = ("argparse", "ast", "dataclasses", "datetime", "inspect", "shutil", "subprocess")


def reward(name: str, weights: Path) -> Service:
    """The model with the weights that `train` made, as a service."""
    return Service(
        id=ServiceId(name),
        loader=f"{__name__}:load",
        weights=(str(weights),),
        batch=32,
        leaves_nothing=True,
        example={"text": "return x + 1"},
    )


def load(files: list[Path]) -> "Reward":
    """The reward model, its weights mapped."""
    from safetensors.torch import load_file

    net = new_net()
    net.load_state_dict(load_file(files[0]), assign=True)
    return Reward(net)


class Reward:
    def __init__(self, net: Any) -> None:
        self._net = net

    def predict(self, payloads: list[dict[str, str]]) -> list[dict[str, float]]:
        import torch

        with torch.inference_mode():
            scores = self._net(as_bytes([payload["text"] for payload in payloads]))
        return [{"reward": score} for score in scores.squeeze(1).tolist()]


def new_net() -> Any:
    """Bytes to one number: what any window of bytes looks like at its most telling."""
    from torch import nn

    return nn.Sequential(
        nn.Embedding(256, 32),
        nn.Flatten(1),
        nn.Unflatten(1, (1, LENGTH, 32)),
        nn.Conv2d(1, 96, kernel_size=(5, 32)),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(1),
        nn.Linear(96, 48),
        nn.ReLU(),
        nn.Linear(48, 1),
    )


def as_bytes(texts: list[str]) -> "Tensor":
    """Each text as `LENGTH` bytes, zeros behind it."""
    import torch

    rows = [text.encode()[:LENGTH].ljust(LENGTH, b"\0") for text in texts]
    return torch.tensor([list(row) for row in rows])


def train(path: Path, *, seed: int = 0, num_steps: int = 400) -> float:
    """Write weights to `path`; how often intact lines beat their damaged copies, held out."""
    import torch
    from safetensors.torch import save_file
    from torch.nn import functional

    torch.manual_seed(seed)
    draw = random.Random(seed)
    lines = list(_lines())
    draw.shuffle(lines)
    held_out, lines = lines[:500], lines[500:]
    net = new_net()
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(num_steps):
        intact = draw.choices(lines, k=64)
        scores = net(as_bytes(intact + [damaged(line, draw) for line in intact]))
        # The loss of a reward model: the better of each pair should win.
        better, worse = scores.squeeze(1).chunk(2)
        odds = functional.softplus(-better) + functional.softplus(worse)
        loss = (functional.softplus(worse - better) + odds).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    save_file(net.state_dict(), path)
    with torch.inference_mode():
        better = net(as_bytes(held_out))
        worse = net(as_bytes([damaged(line, draw) for line in held_out]))
    return float((better > worse).float().mean())


def damaged(line: str, draw: random.Random) -> str:
    """`line` with three of its characters moved elsewhere."""
    letters = list(line)
    for _ in range(3):
        letters.insert(draw.randrange(len(letters)), letters.pop(draw.randrange(len(letters))))
    return "".join(letters)


def _lines() -> Iterator[str]:
    folder = Path(sysconfig.get_path("stdlib"))
    for name in _SOURCES:
        for line in (folder / f"{name}.py").read_text().splitlines():
            if 20 <= len(line.strip()) <= LENGTH and line.isascii():
                yield line.strip()


def main() -> None:
    import sys

    target = Path(sys.argv[1])
    print(f"{target}: intact lines win {train(target):.0%} of held-out pairs")


if __name__ == "__main__":
    main()
