"""The few things we ask of a container engine, through the `docker` SDK. Every call blocks.

- An engine that is there is used: `DOCKER_HOST`, docker's socket, podman's socket.
- Containers and images we make carry a label with the directory of their provider; when that
  directory is gone, so is their provider, and the next provider that opens removes them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artangram.sandbox.container.service import listens
from artangram.sandbox.errors import CreateFailed, ImageError, NotCapable
from artangram.sandbox.inside.openfiles import MANY_FILES
from artangram.sandbox.namespace import images
from artangram.sandbox.protocol import EngineImage, Image

LABEL = "artangram.run"
SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
CALL_TIMEOUT_S = 120
ANY_API = "1.41"
REMOVE_TIMEOUT_S = 10.0
# What our first process needs to build the sandbox's root; it drops all before it serves.
CAPABILITIES = ("SYS_ADMIN", "SETUID", "SETGID", "SETPCAP", "CHOWN", "DAC_OVERRIDE", "FOWNER")
UNCONFINED = ("seccomp=unconfined", "apparmor=unconfined", "label=disable")
# The image's own settings must not reach the loader of our first process. It passes over what
# is not there; podman passes over what is empty.
NOWHERE = "/.artangram/nowhere"
NEUTRAL_ENVIRON = {"LD_PRELOAD": NOWHERE, "LD_AUDIT": NOWHERE}
# Enough for any sandbox; its control groups limit it further.
ULIMITS = (
    ("nofile", resource.RLIMIT_NOFILE, MANY_FILES),
    ("nproc", resource.RLIMIT_NPROC, 1 << 15),
)
HOW = (
    "install podman (apt-get install podman) or docker, and the Python package "
    "(pip install 'artangram[container]')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A container to start. `mounts` shows host paths, read-only, at paths inside."""

    name: str
    image: str
    command: list[str]
    mounts: Mapping[str, str]
    network: str


class ContainerEngine:
    """A connection to one engine."""

    def __init__(self, client: Any, owner: Path, *, description: str) -> None:
        self.description = description
        self._client = client
        self._owner = owner
        self._errors = _sdk().errors

    @classmethod
    def connect(cls, url: str, *, owner: Path) -> ContainerEngine:
        """`owner` is the provider's directory. `NotCapable` when no engine answers at `url`."""
        sdk = _sdk()
        path = url.removeprefix("unix://")
        if path != url and not listens(path):
            # The SDK would find out, too, but leave a socket open.
            raise NotCapable(f"no container engine answers at {url}")
        try:
            with contextlib.closing(sdk.DockerClient(base_url=url, version=ANY_API)) as first:
                # Asked for its version in full, podman takes half a second.
                about = first.api.get(f"{first.api.base_url}/_ping").headers
            spoken = about.get("Api-Version", ANY_API)
            client = sdk.DockerClient(base_url=url, version=spoken, timeout=CALL_TIMEOUT_S)
        except (sdk.errors.DockerException, OSError) as error:
            raise NotCapable(f"no container engine answers at {url}: {error}") from error
        return cls(client, owner, description=about.get("Server", "engine"))

    def start(self, wanted: ContainerSpec) -> None:
        with self._failing("start a container"):
            container = self._client.containers.create(
                wanted.image,
                entrypoint=wanted.command,
                command=[],
                name=wanted.name,
                labels={LABEL: str(self._owner)},
                environment=NEUTRAL_ENVIRON,
                volumes={
                    host: {"bind": inside, "mode": "ro"} for inside, host in wanted.mounts.items()
                },
                network_mode=wanted.network,
                user="0:0",
                working_dir="/",
                read_only=True,
                auto_remove=True,
                cap_drop=["ALL"],
                cap_add=list(CAPABILITIES),
                security_opt=list(UNCONFINED),
                healthcheck={"test": ["NONE"]},
                ulimits=self._ulimits(),
            )
            container.start()

    def _ulimits(self) -> list[Any]:
        """No more than we have: an engine's defaults may be more than it is allowed to give."""
        limits = []
        for name, kind, enough in ULIMITS:
            hard = resource.getrlimit(kind)[1]
            value = enough if hard == resource.RLIM_INFINITY else min(hard, enough)
            limits.append(_sdk().types.Ulimit(name=name, soft=value, hard=value))
        return limits

    def is_running(self, name: str) -> bool:
        try:
            return bool(self._client.containers.get(name).status in ("created", "running"))
        except self._errors.APIError:
            return False

    def remove(self, name: str) -> None:
        """Return when it is gone; the engine may be removing it on its own."""
        gives_up_at = time.monotonic() + REMOVE_TIMEOUT_S
        while time.monotonic() < gives_up_at:
            try:
                self._client.containers.get(name).remove(force=True, v=True)
            except self._errors.NotFound:
                return
            except self._errors.APIError:
                time.sleep(0.02)  # its removal goes on elsewhere

    def find_image(self, name: str, *, pull: bool) -> str:
        """The identity of an image by name, fetched if we may."""
        try:
            return str(self._client.images.get(name).id)
        except self._errors.ImageNotFound as error:
            if not pull:
                raise ImageError(f"the engine has no image {name!r}") from error
        except self._errors.APIError as error:
            raise ImageError(f"image {name!r}: {error}") from error
        try:
            return str(self._client.images.pull(name).id)
        except self._errors.APIError as error:
            raise ImageError(f"image {name!r} cannot be fetched: {error}") from error

    def import_image(self, archive: Path, *, name: str) -> str:
        """A new image from the tar of a root file system; how the engine calls it."""
        # Not by tag, which podman ignores here; in hex, for the sake of its rules for names.
        full_name = f"localhost/artangram/{self._owner.name.encode().hex()}/{name}"
        labels = [f"LABEL {LABEL}={self._owner}"]
        with self._failing("import an image"):
            self._client.api.import_image_from_file(
                str(archive), repository=full_name, tag="latest", changes=labels
            )
        return f"{full_name}:latest"

    def remove_image(self, name: str) -> None:
        with contextlib.suppress(self._errors.APIError):
            self._client.images.remove(name, force=True)

    def sweep(self) -> None:
        """Remove containers and images whose provider is gone."""
        wanted = {"label": LABEL}
        for container in self._client.containers.list(all=True, filters=wanted):
            if not os.path.exists(container.labels.get(LABEL, "")):
                self.remove(container.name)
        for image in self._client.images.list(filters=wanted):
            if not os.path.exists((image.labels or {}).get(LABEL, "")):
                self.remove_image(image.id)

    def close(self) -> None:
        self._client.close()

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._errors.DockerException as error:
            raise CreateFailed(f"the engine could not {what}: {error}") from error


def _sdk() -> Any:
    """The SDK is optional; a program that needs no container never imports it."""
    try:
        return importlib.import_module("docker")
    except ImportError as error:
        raise NotCapable(f"the docker SDK for Python is missing: {HOW}") from error


def find_engine() -> str:
    """The address of an engine that is there already, or an empty text."""
    if address := os.environ.get("DOCKER_HOST", ""):
        return address
    return next((f"unix://{path}" for path in SOCKETS if listens(path)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBase:
    """`binds` are read-only directories of the machine."""

    image: str
    binds: tuple[tuple[str, str], ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)


def prepare_image(
    image: Image, engine: ContainerEngine, *, cache_dir: Path, name: str
) -> EngineBase:
    """May take long: archives are unpacked, and the engine copies what it imports.

    All but an `EngineImage` is imported under a name made of `name`; the caller removes it.
    """
    if isinstance(image, EngineImage):
        return EngineBase(image=engine.find_image(image.name, pull=image.pull))
    base = images.prepare(image, cache_dir=cache_dir)
    with tempfile.TemporaryDirectory(prefix="artangram-") as directory:
        archive = Path(directory) / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(base.layers[-1], arcname=".")
        imported = engine.import_image(archive, name=name)
    return EngineBase(image=imported, binds=base.binds, files=base.files)
