"""Two processes that train together make the steps that one makes alone, whole or in parts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from artangram.models.directory import load_weights  # noqa: E402
from artangram.train.backend import Alone, DataParallel, Sharded  # noqa: E402
from artangram.train.settings import TrainSettings  # noqa: E402
from artangram.train.trainer import Trainer  # noqa: E402
from unit.train.attempts import a_group, a_model, even  # noqa: E402 - only where torch is there

BACKENDS = {"copies": DataParallel, "shards": Sharded}


def two_steps(backend, directory):
    """Two steps from the same groups; weights, norm of the gradient and report as files."""
    torch.set_num_threads(1)
    # Few tokens a micro-batch, an odd number of attempts: one process has a round more.
    settings = TrainSettings(min_samples=4, max_tokens=24)
    trainer = Trainer(a_model(), settings, backend=backend)
    groups = [a_group(a_model(), reward=even, seed=9 * size, size=size) for size in (4, 5)]
    for _ in range(2):
        report = trainer.step(groups)
    assert report.samples % 2, "both would have equally much to do"
    directory.mkdir(exist_ok=True)
    trainer.save_weights(directory)
    told = {"loss": report.loss, "tokens": report.tokens, "norm": report.grad_norm}
    torch.save(told, directory / "report")


@pytest.mark.parametrize("kind", BACKENDS)
def test_two_processes_make_the_steps_of_one(tmp_path, kind):
    tests = Path(__file__).parents[2]
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, kind, str(rank), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(tests)},
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=240) for rank in ranks] == [0, 0]
    two_steps(Alone(), tmp_path / "alone")
    alone, *both = (torch.load(tmp_path / name / "report") for name in ("alone", "0", "1"))
    for one in both:
        assert one["tokens"] == alone["tokens"]
        assert one["loss"] == pytest.approx(alone["loss"], abs=1e-5)
        assert one["norm"] == pytest.approx(alone["norm"], rel=1e-4)
    # The first process writes for both.
    expected, found = load_weights(tmp_path / "alone"), load_weights(tmp_path / "0")
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, atol=1e-5), name
    assert not list((tmp_path / "1").glob("*.safetensors"))


def main(kind: str, rank: int, directory: Path) -> None:
    import torch.distributed as dist

    meeting = dist.FileStore(str(directory / "meeting"), 2)
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=2)
    two_steps(BACKENDS[kind](), directory / str(rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
