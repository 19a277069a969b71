"""What takes seconds to make, and is made once for all."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A directory with a small model that speaks the language of `small`."""
    from integration.pipeline import small

    return small.model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def warm_examples(tmp_path_factory):
    """A copy of the examples, with the model that one of them makes for the others."""
    home = Path(shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("warm") / "examples"))
    subprocess.run([sys.executable, "warm_guessing.py"], cwd=home, check=True, timeout=600)
    return home
