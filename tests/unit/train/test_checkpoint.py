"""Checkpoints appear whole or not at all."""

import pytest

from artangram.core.errors import BadInput
from artangram.train.checkpoint import checkpoints, latest, save


def writes(text):
    return lambda directory: (directory / "file").write_text(text) and None


def test_the_newest_checkpoints_are_kept(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, write=writes(str(step)))
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000002", "step-00000003"]
    assert (latest(tmp_path) / "file").read_text() == "3"


def test_a_crash_while_writing_leaves_the_one_before(tmp_path):
    save(tmp_path, 1, write=writes("whole"))

    def crash(directory):
        (directory / "file").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 2, write=crash)
    assert (latest(tmp_path) / "file").read_text() == "whole"
    save(tmp_path, 3, write=writes("next"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000003"]


def test_a_full_disk_is_said_plainly_and_nothing_is_overwritten(tmp_path):
    save(tmp_path, 1, write=writes("whole"))

    def full(directory):
        raise OSError(28, "No space left on device")

    with pytest.raises(BadInput, match="No space left on device"):
        save(tmp_path, 1, write=full)
    assert (latest(tmp_path) / "file").read_text() == "whole"


def test_the_same_step_again_replaces_the_old_one(tmp_path):
    save(tmp_path, 1, write=writes("before"))
    save(tmp_path, 1, write=writes("after"))
    assert (latest(tmp_path) / "file").read_text() == "after"


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(BadInput, match="holds no checkpoint"):
        latest(tmp_path)
