"""The token of a service: callers send it, and the state directory keeps it.

It is made once per state directory; only the owner of the file can read it.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from artangram.core.errors import BadInput


def checked_token(token: str) -> str:
    """`token` itself, or `BadInput` if no header could carry it as it is."""
    if not isinstance(token, str):
        problem = f"expected `str`, got `{type(token).__name__}`"
        raise BadInput("token", problem, "use what `artangram up` printed")
    if not token:
        raise BadInput(
            "token", "is empty, so every caller would have it", "give one, or leave it out"
        )
    if not (token.isascii() and token.isprintable() and token == token.strip()):
        fix = "use what `artangram up` printed, or letters and digits"
        raise BadInput("token", "has characters that no HTTP header can carry", fix)
    return token


def kept_token(state_dir: Path, name: str = "token") -> str:
    """The token of a state directory, made if it has none. Agents have one of their own."""
    path = state_dir / name
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        _make(path)
    return path.read_text().strip()


def _make(path: Path) -> None:
    """Write a temporary file first: a reader finds the whole token, whatever dies meanwhile."""
    early = path.with_name(f"{path.name}.{os.getpid()}")
    early.unlink(missing_ok=True)
    try:
        with open(os.open(early, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
            new.write(secrets.token_urlsafe(32) + "\n")
        with suppress(FileExistsError):  # Another process was faster.
            os.link(early, path)
    finally:
        early.unlink(missing_ok=True)
