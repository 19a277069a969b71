"""What an embedded engine has read, as a file in shared memory for another one.

The file says which tokens it is about, under which version. A reader refuses a file that says
something else, is cut short, or is not there: `loaded` gives nothing then.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from artangram.gateway.engines.flights import name_of
from artangram.gateway.engines.protocol import Cache

_NAME = "keys and values"


def saved(copied: Tensor, path: Path, *, tokens: Sequence[int], version: int) -> Cache | None:
    """Leave it at `path`; nothing if there is no room."""
    began_at = time.monotonic()
    try:
        save_file({_NAME: copied.contiguous()}, path, metadata=_about(tokens, version))
    except (OSError, SafetensorError):
        path.unlink(missing_ok=True)
        return None
    return Cache(
        version=version,
        tokens=len(tokens),
        num_bytes=copied.nbytes,
        move_s=time.monotonic() - began_at,
        handle=str(path),
    )


def loaded(cache: Cache, *, prompt: Sequence[int], version: int) -> Tensor | None:
    """What was read of this prompt by this version; nothing if the file holds anything else."""
    try:
        with safe_open(cache.handle, framework="pt") as file:
            if file.metadata() != _about(prompt[: cache.tokens], version):
                return None
            found: Tensor = file.get_tensor(_NAME)
            return found
    except (OSError, SafetensorError):
        return None


def _about(tokens: Sequence[int], version: int) -> dict[str, str]:
    return {"tokens": name_of(tokens), "version": str(version)}
