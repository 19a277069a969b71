"""Where untrusted commands run: one small protocol, a default provider without any engine.

- Program failures are values (`CommandResult`), infrastructure failures are `SandboxError`.
- No provider falls back to less isolation in silence: the caller names the lowest
  `IsolationLevel`.
- The boundary is a shared kernel, not a virtual machine; see `docs/sandbox.md`.
"""

from typing import TYPE_CHECKING, Any

from artangram.sandbox.capabilities import Capabilities, Feature, IsolationLevel, Promise
from artangram.sandbox.cpushare import CpuShare
from artangram.sandbox.errors import (
    CreateFailed,
    ImageError,
    NotCapable,
    SandboxError,
    SandboxGone,
)
from artangram.sandbox.protocol import (
    Command,
    CommandResult,
    DirectoryImage,
    EngineImage,
    HostImage,
    Image,
    Limits,
    Output,
    Sandbox,
    SandboxProvider,
    Snapshot,
    Source,
    TarImage,
)
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms

if TYPE_CHECKING:
    from artangram.sandbox.container.provider import ContainerProvider
    from artangram.sandbox.fake import FakeProvider
    from artangram.sandbox.namespace.provider import NamespaceProvider
    from artangram.sandbox.plain.provider import PlainProvider
    from artangram.sandbox.strongest import open_provider
    from artangram.sandbox.warm import Warm

__all__ = [
    "Capabilities",
    "Command",
    "CommandResult",
    "ContainerProvider",
    "CpuShare",
    "CreateFailed",
    "DirectoryImage",
    "EngineImage",
    "FakeProvider",
    "Feature",
    "HostImage",
    "Image",
    "ImageError",
    "IsolationLevel",
    "Limits",
    "NamespaceProvider",
    "NotCapable",
    "Output",
    "PlainProvider",
    "Promise",
    "Sandbox",
    "SandboxError",
    "SandboxGone",
    "SandboxProvider",
    "Snapshot",
    "SnapshotInfo",
    "SnapshotTerms",
    "Source",
    "TarImage",
    "Warm",
    "open_provider",
]

_MODULES = {
    "ContainerProvider": "container.provider",
    "FakeProvider": "fake",
    "NamespaceProvider": "namespace.provider",
    "PlainProvider": "plain.provider",
    "open_provider": "strongest",
    "Warm": "warm",
}


if not TYPE_CHECKING:  # A type checker would believe that every name exists.

    def __getattr__(name: str) -> Any:
        """Import a provider when it is used: clients need the records only, on any system."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module 'artangram.sandbox' has no attribute {name!r}")
        return getattr(import_module(f"artangram.sandbox.{_MODULES[name]}"), name)
