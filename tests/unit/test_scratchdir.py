"""Directories in memory go with their owners, those of killed ones with the next."""

import os
import subprocess
import sys
from pathlib import Path

from artangram.scratchdir import ScratchDir, sweep

OWNER = """
import os, sys
from pathlib import Path
from artangram.scratchdir import ScratchDir
print(ScratchDir.opened(Path(sys.argv[1])).directory, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_home_is_for_its_user_alone_and_goes_when_it_is_closed(tmp_path: Path):
    home = ScratchDir.opened(tmp_path)
    assert home.directory.stat().st_mode & 0o077 == 0
    home.close()
    assert list(tmp_path.iterdir()) == []


def test_a_living_home_is_never_swept(tmp_path: Path):
    home = ScratchDir.opened(tmp_path)
    assert sweep(tmp_path, young_s=0) == []
    assert home.directory.exists()
    home.close()


def test_the_home_of_a_killed_host_is_swept_when_it_is_no_longer_young(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", OWNER, str(tmp_path)], capture_output=True, text=True, check=False
    )
    left = Path(done.stdout.strip())
    assert left.exists()
    assert sweep(tmp_path) == []
    assert sweep(tmp_path, young_s=0) == [left]
    assert not left.exists()


def test_what_is_left_of_a_removal_that_was_cut_short_is_swept(tmp_path: Path):
    left = ScratchDir.opened(tmp_path).directory
    (left / "weights").mkdir()
    (left / "lock").unlink()
    assert sweep(tmp_path) == []
    assert sweep(tmp_path, young_s=0) == [left]
    assert not left.exists()


def test_what_is_not_ours_is_left_alone(tmp_path: Path):
    (tmp_path / "artangram-other").mkdir()
    os.utime(tmp_path / "artangram-other", (0, 0))
    assert sweep(tmp_path, young_s=0) == []
