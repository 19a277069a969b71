"""Versions at rest: whole or not there, and never silently corrupt."""

import os
from pathlib import Path

import pytest

from artangram.core.errors import BadInput
from artangram.weights import BadVersion, StoreFull, WeightStore


def write(directory: Path) -> None:
    (directory / "weights").write_bytes(b"1234")
    (directory / "config.json").write_bytes(b"{}")


def test_what_was_published_is_what_others_read(tmp_path: Path):
    store = WeightStore(tmp_path / "weights")
    manifest = store.publish_with(3, write)
    assert (store.path(3) / "weights").read_bytes() == b"1234"
    assert [(file.name, file.num_bytes) for file in manifest.files] == [
        *(("config.json", 2), ("weights", 4))
    ]
    assert manifest.num_bytes == 6
    assert WeightStore(tmp_path / "weights").verify(3) == manifest


def test_versions_are_listed_and_removed(tmp_path: Path):
    store = WeightStore(tmp_path)
    for version in (9, 10, 2):
        store.publish_with(version, write)
    assert store.versions() == (2, 9, 10)
    assert "2, 9, 10" in repr(store)
    store.remove(9)
    store.remove(9)
    assert WeightStore(tmp_path).versions() == (2, 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v10", "v2"]


def test_a_version_is_published_once(tmp_path: Path):
    store = WeightStore(tmp_path)
    store.publish_with(1, write)
    with pytest.raises(BadInput, match="new number"):
        store.publish_with(1, write)


def test_a_publisher_that_fails_leaves_nothing(tmp_path: Path):
    store = WeightStore(tmp_path)

    def dies(directory: Path) -> None:
        (directory / "weights").write_bytes(b"half of i")
        raise RuntimeError("the trainer died")

    with pytest.raises(RuntimeError):
        store.publish_with(1, dies)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_says_what_to_do(tmp_path: Path):
    def fills(directory: Path) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.raises(StoreFull, match="make room"):
        WeightStore(tmp_path).publish_with(1, fills)
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_publisher_left_is_swept(tmp_path: Path):
    (tmp_path / ".unfinished-abc").mkdir()
    (tmp_path / ".unfinished-abc" / "bucket").write_bytes(b"1")
    assert WeightStore(tmp_path).versions() == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\xff"),
        lambda path: (path.parent / "more-weights").write_bytes(path.read_bytes()),
        lambda path: (path.parent / "manifest.json").unlink(),
        lambda path: (path.parent / "manifest.json").write_text("{}"),
    ],
)
def test_a_damaged_version_is_refused(damage, tmp_path: Path):
    store = WeightStore(tmp_path)
    store.publish_with(1, write)
    damage(store.path(1) / "weights")
    with pytest.raises(BadVersion, match="publish the version again"):
        store.verify(1)


def test_a_version_under_a_false_name_is_refused(tmp_path: Path):
    store = WeightStore(tmp_path)
    store.publish_with(1, write)
    store.path(1).rename(store.path(2))
    with pytest.raises(BadVersion, match="says that it is version 1"):
        store.verify(2)


def test_a_version_without_weights_is_not_published(tmp_path: Path):
    store = WeightStore(tmp_path)
    with pytest.raises(BadInput, match="has no files"):
        store.publish_with(1, lambda directory: None)
    assert store.versions() == ()
    assert list(tmp_path.iterdir()) == []
