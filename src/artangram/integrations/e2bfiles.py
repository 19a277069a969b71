"""E2B's `filesystem.Filesystem` on a trajectory, by the usual programs of the sandbox.

Needs `find` with `-printf`, `mkdir`, `mv` and `rm` there. Times come in whole microseconds.
"""

from datetime import UTC, datetime
from posixpath import basename, dirname, join, normpath
from typing import Any

from artangram.core.errors import InfraFailed
from artangram.integrations.connectrpc import ConnectProblem
from artangram.orchestrator.client import TrajectoryHandle

FORMAT = r"%y\t%Y\t%s\t%m\t%M\t%u\t%g\t%T@\t%p\t%l\0"
_TYPES = {"f": "FILE_TYPE_FILE", "d": "FILE_TYPE_DIRECTORY"}


class E2bFiles:
    """See the module."""

    def __init__(self, trajectory: TrajectoryHandle, *, home: str) -> None:
        self._trajectory = trajectory
        self._home = home

    def absolute(self, path: str) -> str:
        """Relative paths begin at the home."""
        if path == "~" or path.startswith("~/"):
            path = path.removeprefix("~").lstrip("/")
        return normpath(join(self._home, path))

    async def stat(self, wanted: dict[str, Any]) -> dict[str, Any]:
        return {"entry": await self.entry(wanted.get("path", ""))}

    async def entry(self, path: str) -> dict[str, Any]:
        (found,) = await self._found(self.absolute(path), "-maxdepth", "0")
        return found

    async def list_dir(self, wanted: dict[str, Any]) -> dict[str, Any]:
        path, depth = self.absolute(wanted.get("path", "")), int(wanted.get("depth") or 1)
        if (await self.entry(path))["type"] != "FILE_TYPE_DIRECTORY":
            raise ConnectProblem("invalid_argument", f"path is not a directory: {path}")
        depths = ("-mindepth", "1", "-maxdepth", str(depth))
        found = await self._found(path.rstrip("/") + "/", *depths)
        return {"entries": sorted(found, key=lambda one: str(one["path"]))}

    async def make_dir(self, wanted: dict[str, Any]) -> dict[str, Any]:
        path = self.absolute(wanted.get("path", ""))
        try:
            there = await self.entry(path)
        except ConnectProblem:
            await self._run("mkdir", "-p", "--", path)
            return {"entry": await self.entry(path)}
        if there["type"] != "FILE_TYPE_DIRECTORY":
            raise ConnectProblem("invalid_argument", f"path is a file already: {path}")
        raise ConnectProblem("already_exists", f"directory already exists: {path}")

    async def move(self, wanted: dict[str, Any]) -> dict[str, Any]:
        source = self.absolute(wanted.get("source", ""))
        target = self.absolute(wanted.get("destination", ""))
        await self.entry(source)
        await self._run("mkdir", "-p", "--", dirname(target))
        await self._run("mv", "-T", "--", source, target)
        return {"entry": await self.entry(target)}

    async def remove(self, wanted: dict[str, Any]) -> dict[str, Any]:
        await self._run("rm", "-rf", "--", self.absolute(wanted.get("path", "")))
        return {}

    async def _found(self, path: str, *options: str) -> list[dict[str, Any]]:
        told = await self._run("find", path, *options, "-printf", FORMAT)
        return [_entry(line.split("\t")) for line in told.split("\0") if line]

    async def _run(self, *argv: str) -> str:
        result = await self._trajectory.run(argv, kind="e2b/files", output_bytes=32 << 20)
        if result.exit_code is None or result.start_error:
            raise InfraFailed(result.start_error or result.reason)
        if result.exit_code:
            missing = "No such file" in result.stderr
            code = "not_found" if missing else "invalid_argument"
            raise ConnectProblem(code, result.stderr.strip())
        return result.stdout


def _entry(fields: list[str]) -> dict[str, Any]:
    kind, target_kind, size, mode, permissions, user, group, changed, path, target = fields
    entry: dict[str, Any] = {
        "name": basename(path),
        "type": _TYPES.get(target_kind, "FILE_TYPE_UNSPECIFIED"),
        "path": path,
        "size": size,
        "mode": int(mode, 8),
        "permissions": permissions,
        "owner": user,
        "group": group,
        "modifiedTime": datetime.fromtimestamp(float(changed), UTC)
        .isoformat()
        .replace("+00:00", "Z"),
    }
    return entry | ({"symlinkTarget": target, "isSymlink": True} if kind == "l" else {})
