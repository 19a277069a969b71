"""A whole run whose engine is a real vLLM server: the example, for two steps."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from artangram.pipeline.metrics import read

pytestmark = pytest.mark.timeout(1200)  # A server may take minutes to start on a busy machine.

PYTHON = os.environ.get("ARTANGRAM_VLLM_PYTHON", "")
MAIN = "from artangram.cli import main; main()"
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_run_samples_with_vllm_and_brings_it_new_weights(tmp_path: Path) -> None:
    home = Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))
    text = (home / "vllm.yaml").read_text().replace("steps: 30", "steps: 3")
    python = str(Path(PYTHON).absolute())
    (home / "vllm.yaml").write_text(text)
    engines = (home / "vllm_engines.yaml").read_text()
    (home / "vllm_engines.yaml").write_text(engines.replace("../.venv-vllm/bin/python", python))
    for argv in (["warm_guessing.py"], ["-c", MAIN, "train", "vllm.yaml"]):
        environ = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}
        subprocess.run([sys.executable, *argv], cwd=home, env=environ, check=True, timeout=600)
    records = read(home / "out" / "vllm" / "metrics.jsonl")
    assert [record.report.version for record in records] == [1, 2, 3]
    # Tokens that vLLM sampled with the current weights are scored alike by the trainer.
    assert max(record.report.fresh_error for record in records) < 1e-3
    assert max(record.report.max_staleness for record in records) <= 1
