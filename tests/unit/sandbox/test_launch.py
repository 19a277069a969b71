"""Programs that run on a bare interpreter are named by text: every name must be a module."""

import re
from pathlib import Path

import artangram.sandbox

ROOM = Path(artangram.sandbox.__file__).parent


def test_every_program_that_is_launched_is_a_module_with_a_main() -> None:
    sources = [path.read_text() for path in ROOM.rglob("*.py")]
    names = {name for text in sources for name in re.findall(r'\bprogram\("(\w+)"', text)}
    assert "zygote" in names
    for name in names:
        assert "\ndef main(" in (ROOM / "inside" / f"{name}.py").read_text()
