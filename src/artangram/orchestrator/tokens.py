"""The token of a service: what callers send, and where its owner keeps it.

It is made once per state directory and kept there, readable by its owner alone.
"""

import os
import secrets
from pathlib import Path

from artangram.core.errors import BadInput


def checked_token(token: str) -> str:
    """`token` itself, or `BadInput` if no header could carry it as it is."""
    if not token:
        raise BadInput("token", "is empty, so everybody would have it", "give one, or none")
    if not (token.isascii() and token.isprintable() and token == token.strip()):
        fix = "use what `artangram up` printed, or letters and digits"
        raise BadInput("token", "has characters that a header does not carry", fix)
    return token


def kept_token(state_dir: Path) -> str:
    """The token of a state directory, made if it has none."""
    path = state_dir / "token"
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with open(file, "w") as new:
        token = secrets.token_urlsafe(32)
        new.write(token + "\n")
    return token
