"""Copies of weights: each once, side by side as they lay, and none under a running model."""

from pathlib import Path

import pytest

from artangram.services.hostcopies import HostCopies


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "copies").mkdir()
    return tmp_path


def a_file(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def texts(names: tuple[str, ...]) -> list[str]:
    return [Path(name).read_text() for name in names]


def is_same(one: str, other: str) -> bool:
    return Path(one).samefile(other)


async def test_files_of_a_directory_stay_side_by_side(here: Path):
    copies = HostCopies(here / "copies")
    files = (a_file(here / "a/config.json", "c"), a_file(here / "a/weights", "w"))
    kept = await copies.keep(files)
    assert len({Path(name).parent for name in kept}) == 1
    assert texts(kept) == ["c", "w"]
    assert await copies.keep(files[::-1]) == kept[::-1]


async def test_files_of_one_name_are_kept_apart(here: Path):
    copies = HostCopies(here / "copies")
    kept = await copies.keep((a_file(here / "a/weights", "one"), a_file(here / "b/weights", "two")))
    assert texts(kept) == ["one", "two"]


async def test_a_file_that_has_changed_leaves_its_first_copy_alone(here: Path):
    """Together with its neighbours: who takes the directory must not find the old one beside."""
    copies = HostCopies(here / "copies")
    config, weights = a_file(here / "a/config.json", "c"), a_file(here / "a/weights", "old")
    before = await copies.keep((config, weights))
    after = await copies.keep((config, a_file(here / "a/weights", "newer")))
    assert (texts(before), texts(after)) == (["c", "old"], ["c", "newer"])
    assert len({Path(name).parent for name in after}) == 1


async def test_many_directories_that_lead_to_one_file_share_its_copy(here: Path):
    copies = HostCopies(here / "copies")
    blob = Path(a_file(here / "blob", "w"))
    names = []
    for folder in ("a", "b"):
        (here / folder).mkdir()
        (here / folder / "weights").symlink_to(blob)
        names.append(str(here / folder / "weights"))
    one, two = await copies.keep(tuple(names))
    assert Path(one).parent != Path(two).parent
    assert is_same(one, two)
