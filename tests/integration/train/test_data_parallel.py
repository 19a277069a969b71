"""Two processes that train together make the step that one makes alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from artangram.train.backend import Alone, DataParallel  # noqa: E402
from artangram.train.settings import TrainSettings  # noqa: E402
from artangram.train.trainer import Trainer  # noqa: E402
from unit.train.attempts import a_group, a_model, even  # noqa: E402 - only where torch is there


def a_step(backend, path):
    """One step from the same groups; its gradient and report as a file."""
    torch.set_num_threads(1)
    trainer = Trainer(a_model(), TrainSettings(min_samples=4), backend=backend)
    report = trainer.step([a_group(a_model(), reward=even, seed=s, size=5) for s in (0, 50)])
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    torch.save({"gradient": gradient, "loss": report.loss, "tokens": report.tokens}, path)


def test_two_processes_make_the_step_of_one(tmp_path):
    tests = Path(__file__).parents[2]
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(tests)},
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    a_step(Alone(), tmp_path / "alone")
    alone, *both = (torch.load(tmp_path / name) for name in ("alone", "0", "1"))
    for one in both:
        assert torch.allclose(one["gradient"], alone["gradient"], atol=1e-6)
        assert one["loss"] == pytest.approx(alone["loss"], abs=1e-6)
        assert one["tokens"] == alone["tokens"]


def main(rank: int, directory: Path) -> None:
    import torch.distributed as dist

    meeting = dist.FileStore(str(directory / "meeting"), 2)
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=2)
    a_step(DataParallel(), directory / str(rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
