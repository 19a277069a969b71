"""Print every file this interpreter needs to run `contained`: shared objects, then modules."""

from __future__ import annotations

import sys

from artangram.sandbox.inside import contained


def main() -> None:
    modules = [contained, *sys.modules.values()]
    with open("/proc/self/maps") as maps:
        mapped = {line.split(None, 5)[5].strip() for line in maps if "/" in line}
    for path in sorted(mapped):
        if not path.startswith(("/dev/", "/memfd:")) and ".cache" not in path:
            print("mapped", path)
    for module in modules:
        if file := getattr(module, "__file__", None):
            print("module", file)
