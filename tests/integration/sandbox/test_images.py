"""Sandboxes on directories, tar files and OCI archives."""

# ruff: noqa: ASYNC240 - a test may block

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from artangram.sandbox import (
    Command,
    CreateFailed,
    DirectoryImage,
    HostImage,
    ImageError,
    Limits,
    NamespaceProvider,
    TarImage,
)
from artangram.sandbox.inside import linux
from artangram.sandbox.namespace import images
from artangram.sandbox.protocol import Image
from artangram.sandbox.user import BOX

from .archives import docker_archive, oci_archive, tar_of

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_directory_is_the_root_and_stays_as_it_is(
    provider: NamespaceProvider, rootfs: Path
) -> None:
    box = await provider.create(DirectoryImage(path=str(rootfs)))
    result = await box.run(Command(argv=("dash", "-c", "cat /etc/release; echo hi > /tmp/x")))
    assert (result.stdout, result.stderr) == (b"tiny 1", b"")
    assert not os.path.lexists(rootfs / "tmp")
    assert (await box.run(Command(argv=("python3",)))).exit_code == 127
    await box.close()


async def test_the_user_owns_and_changes_its_copy_of_the_image(
    provider: NamespaceProvider, rootfs: Path
) -> None:
    box = await provider.create(DirectoryImage(path=str(rootfs)))
    change = "echo mine > /srv/old && echo new > /srv/new && cat /srv/old && ls /srv"
    result = await box.run(Command(argv=("dash", "-c", change)))
    assert (result.stdout, result.stderr) == (b"mine\nnew\nold\n", b"")
    sibling = await provider.create(await box.snapshot())
    again = await sibling.run(Command(argv=("dash", "-c", "echo more >> /srv/old; cat /srv/old")))
    assert (again.stdout, again.stderr) == (b"mine\nmore\n", b"")
    assert (rootfs / "srv/old").read_bytes() == b"old"
    assert (rootfs / "srv/old").stat().st_uid == os.getuid()
    await box.close()
    await sibling.close()


async def test_the_image_stays_roots_unless_it_is_given_away(
    provider: NamespaceProvider, rootfs: Path
) -> None:
    box = await provider.create(DirectoryImage(path=str(rootfs), own=False))
    result = await box.run(Command(argv=("dash", "-c", "echo mine > /srv/old")))
    assert result.exit_code != 0
    await box.close()


async def test_pid_1_imports_nothing_from_its_sandbox(
    provider: NamespaceProvider, rootfs: Path, tmp_path: Path
) -> None:
    """Every verb, on an image whose standard library is a trap: PID 1 may never look there."""
    trap = "open('/tmp/trapped', 'w').close()\n"
    image = shutil.copytree(rootfs, tmp_path / "trap", symlinks=True)
    library = image / os.__file__.lstrip("/")
    for name in sys.stdlib_module_names:
        target = library.parent / f"{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(trap)
    box = await provider.create(DirectoryImage(path=str(image)))
    await box.run(Command(argv=("no-such-program",)))
    await box.run(Command(argv=("dash", "-c", "while true; do true; done &"), keep=True))
    await box.run(Command(argv=("dash", "-c", "while true; do true; done &")))
    await box.run(Command(argv=("dash", "-c", "while true; do true; done"), timeout_s=0.05))
    with pytest.raises(OSError, match="missing"):
        await box.read("missing")
    await box.write("file", b"x")
    with pytest.raises(OSError, match="under"):
        await box.write("file/under", b"x")
    sibling = await provider.create(await box.snapshot())
    for each in (box, sibling):
        with pytest.raises(FileNotFoundError):
            await each.read("/tmp/trapped")
        await each.close()


@pytest.mark.parametrize("pack", [docker_archive, oci_archive])
async def test_layers_are_applied_in_order_with_their_deletions(
    provider: NamespaceProvider, rootfs: Path, tmp_path: Path, pack: object
) -> None:
    archive = tmp_path / "image.tar"
    archive.write_bytes(pack(rootfs))  # type: ignore[operator]
    box = await provider.create(TarImage(path=str(archive)))
    assert (await box.run(Command(argv=("ls", "/srv")))).stdout == b"new\n"
    assert (await box.run(Command(argv=("/bin/cat", "/etc/release")))).stdout == b"tiny 1"
    await box.close()


@pytest.mark.parametrize("image", [DirectoryImage(path="/nowhere"), TarImage(path="/nowhere")])
async def test_missing_image_is_named(provider: NamespaceProvider, image: object) -> None:
    with pytest.raises(ImageError, match="nowhere"):
        await provider.create(image)  # type: ignore[arg-type]


async def test_network_is_the_hosts_when_allowed(provider: NamespaceProvider) -> None:
    box = await provider.create(HostImage(), limits=Limits(network="host"))
    inside = await box.run(Command(argv=("readlink", "/proc/self/ns/net")))
    assert inside.stdout.decode().strip() == os.readlink("/proc/self/ns/net")
    await box.close()


@pytest.mark.parametrize("link", ["etc", "etc/passwd"])
async def test_no_file_of_the_machine_is_taken_for_one_of_the_image(
    tmp_path: Path, link: str
) -> None:
    """What passes for the users of an image can be read by everybody inside."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "passwd").write_text("secret\n")
    image = tmp_path / "image"
    (image / link).parent.mkdir(parents=True)
    (image / link).symlink_to(secret / "passwd" if link.endswith("passwd") else secret)
    base = images.prepare(DirectoryImage(path=str(image)), cache_dir=tmp_path / "cache")
    assert b"secret" not in base.files_for(BOX, 1)["/etc/passwd"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
async def test_what_is_mounted_below_a_shown_directory_is_only_shown(
    state_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A flag of one mount is none of those below it: a disk under /opt would be writable."""
    shown = tmp_path_factory.mktemp("shown")
    shown.chmod(0o755)
    (shown / "disk").mkdir()
    linux.mount("disk", str(shown / "disk"), kind="tmpfs", options="mode=777,size=1m")
    try:
        (shown / "disk/file").write_text("of the machine")
        provider = await NamespaceProvider.open(state_dir=state_dir)
        sandbox = await provider.create(HostImage(also=(str(shown),)))
        try:
            script = f"cd {shown}/disk && cat file; touch evil; grep {shown}/disk /proc/self/mounts"
            told = await sandbox.run(Command(argv=("sh", "-c", script)))
            assert told.stdout.startswith(b"of the machine")
            assert b"Read-only file system" in told.stderr
            assert b"ro,nosuid,nodev" in told.stdout
            assert os.listdir(shown / "disk") == ["file"]
        finally:
            await provider.close()
    finally:
        linux.detach(str(shown / "disk"))


@pytest.mark.parametrize("kind", ["directory", "tar", "host"])
async def test_a_path_that_was_permitted_leads_nowhere_else_later(
    provider: NamespaceProvider, rootfs: Path, tmp_path: Path, kind: str
) -> None:
    """Whoever may write there swaps a folder above it for a link, between check and use."""
    offered, secret = tmp_path / "offered", tmp_path / "secret"
    for folder in (offered, secret):
        folder.mkdir()
        shutil.copytree(rootfs, folder / "root", symlinks=True)
        (folder / "root.tar").write_bytes(tar_of(rootfs))
    image: Image = DirectoryImage(path=str(offered / "root"), links=False)
    if kind == "tar":
        image = TarImage(path=str(offered / "root.tar"), links=False)
    elif kind == "host":
        image = HostImage(also=(str(offered / "root"),), links=False)
    offered.rename(tmp_path / "away")
    offered.symlink_to(secret)
    with pytest.raises(ImageError, match="is no longer what was permitted"):
        await provider.create(image)


async def test_an_image_in_use_is_not_followed_elsewhere(
    provider: NamespaceProvider, rootfs: Path, tmp_path: Path
) -> None:
    offered = tmp_path / "offered"
    shutil.copytree(rootfs, offered, symlinks=True)
    image = DirectoryImage(path=str(offered))
    await (await provider.create(image)).close()
    offered.rename(tmp_path / "away")
    offered.symlink_to(rootfs)
    with pytest.raises(CreateFailed, match="symbolic links"):
        await provider.create(image)


async def test_a_strict_umask_of_the_owner_locks_no_sandbox(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        provider = await NamespaceProvider.open(state_dir=tmp_path)
        try:
            box = await provider.create(HostImage())
            result = await box.run(Command(argv=("sh", "-c", "echo hi > mine; cat mine; ls /")))
            python = await box.run(Command(argv=(sys.executable, "-c", "print(1)")))
            await box.close()
        finally:
            await provider.close()
    finally:
        os.umask(before)
    assert (result.exit_code, result.start_error, result.stdout[:3]) == (0, "", b"hi\n")
    assert (python.exit_code, python.start_error, python.stdout) == (0, "", b"1\n")
