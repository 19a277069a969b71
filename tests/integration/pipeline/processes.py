"""Processes of this machine: who is below whom, and which sandbox runs what."""

from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def children_of(parent):
    """All processes below `parent`."""
    found = []
    with suppress(OSError):  # Processes end while we look.
        for task in (PROC / str(parent) / "task").iterdir():
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return found + [below for pid in found for below in children_of(pid)]


def below(parent, word):
    """Those below `parent` that have `word` in their argv."""
    return [pid for pid in children_of(parent) if word in argv(pid)]


def argv(pid):
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_text().replace("\0", " ")
    return ""


def sandbox_of(pid):
    """The first process of the process namespace that `pid` lives in; `None` if that is ours."""
    while pid:
        fields = _status(pid)
        names = fields.get("NSpid", "").split()
        if len(names) > 1 and names[-1] == "1":
            return pid
        pid = int(fields.get("PPid", "0"))
    return None


def _status(pid):
    with suppress(OSError):
        lines = (PROC / str(pid) / "status").read_text().splitlines()
        return {key: value for key, _, value in (line.partition(":\t") for line in lines)}
    return {}
