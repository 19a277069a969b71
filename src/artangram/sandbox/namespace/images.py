"""Turn an image into what a sandbox mounts: read-only layers, binds and a few small files.

- `/etc/passwd` and `/etc/group` of every sandbox name its user.
- The host's own image shows programs, not data: no home, no `/etc` but what programs need.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from artangram.sandbox.errors import ImageError
from artangram.sandbox.inside import linux
from artangram.sandbox.namespace.archive import move_into_place, unpack
from artangram.sandbox.protocol import EngineImage, HostImage, Image, TarImage
from artangram.sandbox.user import SandboxUser

HOST_TREES = ("/usr", "/opt")
HOST_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
HOST_ETC = (
    "alternatives",
    "ca-certificates",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
MOUNT_POINTS = ("dev", "proc", "tmp", "var/tmp", "work", "etc", "run", "home", "root")
NOBODY = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
NO_GROUPS = b"root:x:0:\nnogroup:x:65534:\n"
HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"
_MANUALS = shutil.ignore_patterns("*.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What sandboxes of one image have in common; layers from the top down, by their real paths.

    One that has become a link when a sandbox is made is not followed: making it fails.

    With `own`, root's files in the lowest layer, the image itself, belong to the sandbox's user.
    """

    layers: tuple[str, ...]
    own: bool = False
    binds: tuple[tuple[str, str], ...] = ()
    passwd: bytes = NOBODY
    group: bytes = NO_GROUPS
    files: dict[str, bytes] = field(default_factory=dict)

    def files_for(self, user: SandboxUser, uid: int) -> dict[str, bytes]:
        return self.files | user_files(user, uid, passwd=self.passwd, group=self.group)


def user_files(
    user: SandboxUser, uid: int, *, passwd: bytes = b"", group: bytes = b""
) -> dict[str, bytes]:
    """`/etc/passwd` and `/etc/group` of an image, with the sandbox's user.

    One that is called root takes the place of root, and is the number 0 inside.
    """
    if user.is_root:
        passwd, group = (_without_root(lines) for lines in (passwd, group))
        return {"/etc/passwd": user.passwd(0) + passwd, "/etc/group": user.group(0) + group}
    return {"/etc/passwd": passwd + user.passwd(uid), "/etc/group": group + user.group(uid)}


def _without_root(lines: bytes) -> bytes:
    kept = [line for line in lines.splitlines(keepends=True) if not line.startswith(b"root:")]
    return b"".join(kept)


def prepare(image: Image, *, cache_dir: Path) -> Base:
    """May take seconds the first time an archive is seen; call it off the event loop."""
    if isinstance(image, EngineImage):
        raise ImageError("an image of an engine needs the container provider")
    if isinstance(image, HostImage):
        for tree in image.also if not image.links else ():
            os.close(_held(tree))
        return _host_base(image, cache_dir)
    if isinstance(image, TarImage):
        return _directory_base(_unpacked(image, cache_dir), own=image.own)
    if not image.links:
        os.close(_held(image.path))
    return _directory_base(Path(image.path), own=image.own)


def _unpacked(image: TarImage, cache_dir: Path) -> Path:
    if image.links:
        return unpack(Path(image.path), cache_dir=cache_dir)
    held = _held(image.path)
    try:
        # By descriptor: another file may have its name by now.
        return unpack(Path(f"/proc/self/fd/{held}"), cache_dir=cache_dir, name=image.path)
    finally:
        os.close(held)


def _held(path: str) -> int:
    try:
        return linux.hold(path)
    except OSError as error:
        raise ImageError(f"{path} is no longer what was permitted: {error.strerror}") from error


def _directory_base(path: Path, *, own: bool) -> Base:
    if not path.is_dir():
        raise ImageError(f"{path} is not a directory")
    if ":" in str(path):
        raise ImageError("the path of an image may not contain a colon")
    return Base(
        layers=(str(path.resolve()),),
        own=own,
        passwd=_lines(path, "etc/passwd", NOBODY),
        group=_lines(path, "etc/group", NO_GROUPS),
    )


def _lines(root: Path, name: str, default: bytes) -> bytes:
    """The file of an image, never followed out of it by a link, be it one to its directory."""
    path = (root / name).resolve()
    if root.resolve() not in path.parents or not path.is_file():
        return default
    data = path.read_bytes()
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _host_base(image: HostImage, cache_dir: Path) -> Base:
    trees = [Path(tree) for tree in (*HOST_TREES, *_interpreters(), *image.also)]
    skeleton = cache_dir / f"host-{_state_of_etc(trees)}"
    if not skeleton.exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix="partial-", dir=cache_dir))
        partial.chmod(0o755)
        _make_skeleton(partial, trees)
        move_into_place(partial, skeleton)
    return Base(
        layers=(str(skeleton.resolve()),),
        binds=tuple((str(tree.resolve()), str(tree)) for tree in trees if tree.is_dir()),
        files={"/etc/hosts": HOSTS} | _name_servers(),
    )


def _state_of_etc(trees: list[Path]) -> str:
    """Changes whenever what is copied into a skeleton does."""
    parts = [str(tree) for tree in trees]
    for path in (Path("/etc") / name for name in HOST_ETC):
        if path.exists():
            about = path.stat()
            parts.append(f"{path} {about.st_mtime_ns} {about.st_size}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _name_servers() -> dict[str, bytes]:
    resolver = Path("/etc/resolv.conf")
    return {"/etc/resolv.conf": resolver.read_bytes()} if resolver.is_file() else {}


def _interpreters() -> list[str]:
    """This Python and its environment, when they are not in the system's own directories."""
    found = dict.fromkeys((sys.base_prefix, sys.prefix))
    return [path for path in found if not path.startswith(HOST_TREES)]


def _make_skeleton(skeleton: Path, trees: list[Path]) -> None:
    for name in (*MOUNT_POINTS, *(str(tree).lstrip("/") for tree in trees)):
        _make_directories(skeleton, name)
    for link in map(Path, HOST_LINKS):
        if link.is_symlink():
            (skeleton / link.name).symlink_to(link.readlink())
        elif link.is_dir():
            raise ImageError(f"{link} is not a link into /usr: use a directory or tar image here")
    for name in HOST_ETC:
        _copy(Path("/etc") / name, skeleton / "etc" / name)


def _make_directories(skeleton: Path, name: str) -> None:
    """Every user may enter them, whatever the owner's umask is."""
    path = skeleton
    for part in Path(name).parts:
        path /= part
        if not path.exists():
            path.mkdir()
            path.chmod(0o755)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=_MANUALS)
    elif source.exists():
        shutil.copy2(source, target)
