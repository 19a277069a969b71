"""A service that can never work is refused before anything is loaded."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import ServiceId
from artangram.services import Service, loader_name
from artangram.services.service import checked

GOOD = Service(id=ServiceId("judge"), loader="package.module:load")


def refusal(**changes: Any) -> BadInput:
    service = structs.replace(GOOD, **changes)
    with pytest.raises(BadInput) as caught:
        checked(service, num_devices=2, memory_mb=100)
    return caught.value


def test_a_good_service_passes():
    assert checked(GOOD, num_devices=2, memory_mb=100) is GOOD


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("loader", "module"),
        ("loader", "module:"),
        ("loader", "mod ule:load"),
        ("options", {"x": object()}),
        ("degrees", ()),
        ("degrees", (3,)),
        ("degrees", (0,)),
        ("degrees", (4,)),
        ("batch", 0),
        ("runtime_mb", -1),
        ("longest_predict_s", 0.0),
        ("longest_predict_s", float("inf")),
    ],
)
def test_the_field_that_is_wrong_is_named(field: str, value: Any):
    error = refusal(**{field: value})
    assert error.field == field
    assert error.fix


def test_weights_that_are_not_there_are_named():
    assert refusal(weights=("nowhere.safetensors",)).field == "weights[0]"


def test_weights_larger_than_any_device_are_refused(tmp_path: Path):
    file = tmp_path / "weights"
    with file.open("wb") as sparse:
        sparse.truncate(150 << 20)
    assert "150 MB" in refusal(weights=(str(file),)).problem
    stages = structs.replace(GOOD, weights=(str(file),), degrees=(1, 2))
    assert checked(stages, num_devices=2, memory_mb=100) is stages


def test_a_function_is_known_by_its_name():
    assert loader_name(checked) == "artangram.services.service:checked"
    assert loader_name("a:b") == "a:b"


def test_a_function_without_a_name_to_import_is_refused():
    with pytest.raises(BadInput, match="top of a module"):
        loader_name(lambda files: None)


def test_a_function_of_the_program_itself_is_refused():
    def load() -> None: ...

    load.__module__, load.__qualname__ = "__main__", "load"
    with pytest.raises(BadInput, match="move it to a module"):
        loader_name(load)
