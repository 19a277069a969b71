"""What tests ask of the kernel about processes."""

from pathlib import Path


def is_alive(pid: int) -> bool:
    """Does it run? One that only waits to be reaped does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
