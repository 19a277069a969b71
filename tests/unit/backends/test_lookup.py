"""What callers of `ray://...` are told when Ray is missing or the address is wrong."""

import subprocess
import sys

import pytest
from process_support import environ

import artangram
from artangram.backends.ray import lookup
from artangram.core.errors import BadInput

HIDDEN = "import sys; sys.modules['ray'] = None; from artangram.cli import main; main()"


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_ray")
async def test_without_ray_one_sentence_names_the_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"needs Ray; pip install 'artangram\[ray\]'"):
        async with artangram.connect("ray://auto"):
            pass


async def test_an_address_without_a_host_is_refused() -> None:
    with pytest.raises(BadInput, match="is not a URL"):
        async with artangram.connect("ray://"):
            pass


def test_options_of_ray_need_ray(tmp_path: object) -> None:
    words = ("up", "--ray-cpus", "2", "--state-dir", f"{tmp_path}/state")
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, *words], env=environ(), text=True, capture_output=True
    )
    assert done.returncode == 2
    assert "error: --ray: is missing, and another option needs it; add --ray auto" in done.stderr
