"""Versions at rest: whole or not there, and never silently corrupt."""

import os
from pathlib import Path

import pytest
from safetensors import safe_open

from artangram.core.errors import BadInput
from artangram.weights import BadVersion, StoreFull, TensorData, WeightStore


def tensors(*names: str, value: float = 1.0) -> list[TensorData]:
    from array import array

    data = array("f", [value] * 6).tobytes()
    return [TensorData(name=name, dtype="F32", dims=(2, 3), data=data) for name in names]


def test_what_was_published_is_what_others_read(tmp_path: Path):
    store = WeightStore(tmp_path / "weights", bucket_bytes=50)
    half = TensorData(name="odd", dtype="BF16", dims=(1,), data=b"\x80\x3f")
    manifest = store.publish(3, [half, *tensors("a", "b", "c", value=2.5)])
    found = {}
    for path in sorted(store.path(3).glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (it is no dict)
                found[name] = file.get_slice(name).get_shape()
                if name != "odd":
                    assert (file.get_tensor(name) == 2.5).all()
    assert found == {"odd": [1], "a": [2, 3], "b": [2, 3], "c": [2, 3]}
    assert len(manifest.files) == 2
    assert manifest.num_bytes > 3 * 24
    assert store.verify(3) == manifest


def test_versions_are_listed_and_removed(tmp_path: Path):
    store = WeightStore(tmp_path)
    for version in (9, 10, 2):
        store.publish(version, tensors("a"))
    assert store.versions() == (2, 9, 10)
    assert "2, 9, 10" in repr(store)
    store.remove(9)
    store.remove(9)
    assert WeightStore(tmp_path).versions() == (2, 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v10", "v2"]


def test_a_version_is_published_once(tmp_path: Path):
    store = WeightStore(tmp_path)
    store.publish(1, tensors("a"))
    with pytest.raises(BadInput, match="new number"):
        store.publish(1, tensors("b"))


def test_a_publisher_that_fails_leaves_nothing(tmp_path: Path):
    store = WeightStore(tmp_path)

    def write(directory: Path) -> None:
        (directory / "bucket-00000.safetensors").write_bytes(b"half of i")
        raise RuntimeError("the trainer died")

    with pytest.raises(RuntimeError):
        store.publish_with(1, write)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_says_what_to_do(tmp_path: Path):
    def write(directory: Path) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.raises(StoreFull, match="make room"):
        WeightStore(tmp_path).publish_with(1, write)
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
        lambda path: (path.parent / "bucket-00009.safetensors").write_bytes(path.read_bytes()),
        lambda path: (path.parent / "manifest.json").unlink(),
        lambda path: (path.parent / "manifest.json").write_text("{}"),
    ],
)
def test_a_damaged_version_is_refused(damage, tmp_path: Path):
    store = WeightStore(tmp_path)
    store.publish(1, tensors("a"))
    damage(store.path(1) / "bucket-00000.safetensors")
    with pytest.raises(BadVersion, match="publish the version again"):
        store.verify(1)


def test_a_version_under_a_false_name_is_refused(tmp_path: Path):
    store = WeightStore(tmp_path)
    store.publish(1, tensors("a"))
    store.path(1).rename(store.path(2))
    with pytest.raises(BadVersion, match="says that it is version 1"):
        store.verify(2)


def test_a_version_without_weights_is_not_published(tmp_path: Path):
    store = WeightStore(tmp_path)
    with pytest.raises(BadInput, match="holds none"):
        store.publish(1, [])
    assert store.versions() == ()
    assert list(tmp_path.iterdir()) == []


def test_input_that_cannot_be_published_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="F32"):
        TensorData(name="a", dtype="float32", dims=(1,), data=b"1234")
    with pytest.raises(BadInput, match="no size"):
        WeightStore(tmp_path, bucket_bytes=0)
