"""Where untrusted commands run: one small protocol, a default provider without any engine.

- Program failures are values (`CommandResult`), infrastructure failures are `SandboxError`.
- No provider falls back to weaker walls in silence: the caller names the lowest `Rung`.
- The boundary is a shared kernel, not a virtual machine; see `docs/sandbox.md`.
"""

from artangram.sandbox.errors import (
    CreateFailed,
    ImageError,
    NotCapable,
    SandboxError,
    SandboxGone,
)
from artangram.sandbox.fake import FakeProvider
from artangram.sandbox.namespace.provider import NamespaceProvider
from artangram.sandbox.probe import probe
from artangram.sandbox.protocol import (
    Capabilities,
    Command,
    CommandResult,
    DirectoryImage,
    Feature,
    HostImage,
    Image,
    Limits,
    Output,
    Rung,
    Sandbox,
    SandboxProvider,
    Snapshot,
    Source,
    TarImage,
)
from artangram.sandbox.warm import Warm

__all__ = [
    "Capabilities",
    "Command",
    "CommandResult",
    "CreateFailed",
    "DirectoryImage",
    "FakeProvider",
    "Feature",
    "HostImage",
    "Image",
    "ImageError",
    "Limits",
    "NamespaceProvider",
    "NotCapable",
    "Output",
    "Rung",
    "Sandbox",
    "SandboxError",
    "SandboxGone",
    "SandboxProvider",
    "Snapshot",
    "Source",
    "TarImage",
    "Warm",
    "probe",
]
