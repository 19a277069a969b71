"""docs/reference.md is what the code says now, and it leaves nothing public out."""

import importlib.util
from pathlib import Path
from types import ModuleType

import artangram

ROOT = Path(__file__).parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("r", ROOT / "docs" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date() -> None:
    made = generator().page()
    assert made == (ROOT / "docs" / "reference.md").read_text(), "python docs/make_reference.py"


def test_every_public_name_is_in_it() -> None:
    listed = {name for names in generator().GROUPS.values() for name in names.split()}
    assert listed == set(artangram.__all__) - {"sync"}
