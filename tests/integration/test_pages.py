"""Every code block of a page runs as it stands, from top to bottom, unless marked a fragment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PAGES, ROOT, blocks, is_run, script

RUN = [page for page in PAGES if any(map(is_run, blocks(page.read_text())))]
pytestmark = pytest.mark.timeout(600)  # Of a machine that does much else.


def environ(home: Path) -> dict[str, str]:
    """As a reader has it who installed the project: its commands first, and no service yet."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("ARTANGRAM_")}
    commands = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    sources = f"{ROOT / 'src'}:{ROOT / 'benchmarks'}"
    return mine | {"PATH": commands, "PYTHONPATH": sources, "HOME": str(home)}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples with the model that several pages begin with: making it again takes no time."""
    pytest.importorskip("torch", reason="pages train models")
    home = tmp_path_factory.mktemp("pages")
    made = Path(shutil.copytree(ROOT / "examples", home / "examples"))
    warm = [sys.executable, "examples/warm_guessing.py"]
    subprocess.run(warm, cwd=home, env=environ(home), check=True, timeout=500)
    shutil.rmtree(made / "models" / "guessing")
    return made


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(page: Path, examples: Path, tmp_path: Path):
    shutil.copytree(examples, tmp_path / "examples")
    ran = subprocess.run(
        ["bash", "-c", script(page.read_text(), name=page.name)],
        cwd=tmp_path,
        env=environ(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
