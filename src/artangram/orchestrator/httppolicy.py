"""What a caller over HTTP may ask for: only those files of the host that its cluster offers.

A caller in the same process has the rights of that process anyway. A token allows commands in
sandboxes, so a path of the host in a request must be below a directory that the cluster names;
otherwise a caller could read any file of the machine as an image.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import TrajectoryId
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.records import Opening
from artangram.sandbox.protocol import (
    MAX_READ_BYTES,
    DirectoryImage,
    HostImage,
    Source,
    TarImage,
)

MOST_OUTPUT_BYTES = MAX_READ_BYTES
"""Of one command: the orchestrator holds it in memory until it is fetched."""


def permit_name(trajectory: TrajectoryId) -> None:
    """Raises `BadInput` if no URL could carry it, so that no request could name it."""
    if trajectory in ("", ".", ".."):
        fix = "name it without control characters, and not . or .."
        raise BadInput("trajectory", f"{trajectory!r} cannot be part of an address", fix)
    permit_names(trajectory=trajectory)


def permit_names(**names: str) -> None:
    """Raises `BadInput` for a name with control characters: logs and terminals show names."""
    for field, name in names.items():
        if not name.isprintable():
            fix = "name it without control characters"
            raise BadInput(field, f"{name[:80]!r} has characters that cannot be printed", fix)


def permit_opening(opening: Opening, *, images: Sequence[Path]) -> Opening:
    """The opening with the real paths that were checked, which no later link can lead elsewhere.

    Raises `BadInput` if it names what is not offered. Looks at files: not for the event loop.
    """
    permit_names(job=opening.job, task=opening.task, owner=opening.owner)
    for label, value in opening.selector.items():
        permit_names(selector=label + value)
    source = _pinned(opening.place.source)
    for path, real in zip(_paths(opening.place.source), _paths(source), strict=True):
        if not any(Path(real).is_relative_to(folder.resolve()) for folder in images):
            fix = "name its folder under `images:` in the configuration of the client"
            raise BadInput("place.source", f"{path} is not offered to callers over HTTP", fix)
    return structs.replace(opening, place=structs.replace(opening.place, source=source))


def permit_run(request: RunRequest) -> None:
    """Raises `BadInput` if it asks for more than a service holds for one caller."""
    permit_names(kind=request.kind)
    if request.output_bytes > MOST_OUTPUT_BYTES:
        problem = f"{request.output_bytes} is above {MOST_OUTPUT_BYTES}"
        raise BadInput("output_bytes", problem, "print into a file and read that in pieces")


def _pinned(source: Source) -> Source:
    match source:
        case HostImage(also=paths) if paths:
            real = tuple(str(Path(path).resolve()) for path in paths)
            return structs.replace(source, also=real, links=False)
        case DirectoryImage(path=path) | TarImage(path=path):
            return structs.replace(source, path=str(Path(path).resolve()), links=False)
    return source


def _paths(source: Source) -> tuple[str, ...]:
    match source:
        case HostImage(also=paths):
            return paths
        case DirectoryImage(path=path) | TarImage(path=path):
            return (path,)
    return ()
