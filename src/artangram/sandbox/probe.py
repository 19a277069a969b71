"""What this machine can do for sandboxes, found by trying, and how to get what is missing.

`probe` starts a few short-lived processes and makes and removes one control group; it changes
nothing that lasts. The level is the highest one whose needs are all met.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys

from artangram.sandbox.capabilities import PROMISES, Capabilities, Feature, IsolationLevel
from artangram.sandbox.container import engine
from artangram.sandbox.container.engine import find_engine
from artangram.sandbox.inside import linux
from artangram.sandbox.namespace import compiled
from artangram.sandbox.namespace.cgroups import Groups, find_hierarchies
from artangram.sandbox.namespace.launch import interpreter, program
from artangram.sandbox.namespace.rundir import default_state_dir
from artangram.scratchdir import ScratchDir

TRY_TIMEOUT_S = 20.0

HOW = {
    "linux": "run on Linux, on x86_64 or aarch64",
    "seccomp": "use a kernel built with CONFIG_SECCOMP_FILTER, and a runtime that allows it",
    "namespaces": (
        "run as root, or allow user namespaces: sysctl user.max_user_namespaces=10000, "
        "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; "
        "in a container: --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
    ),
    "cgroups": (
        "run as root with writable control groups (memory, pids, cpuset, freezer); with version 2 "
        "start it in a group of its own: systemd-run --scope -p Delegate=yes"
    ),
    "compiled init": compiled.HOW,
    "container engine": engine.HOW,
}


def probe() -> Capabilities:
    features = [_linux()]
    if features[0].available:
        features += [_tried("seccomp"), _tried("namespaces"), _cgroups()]
    else:
        features += [_feature(name, "not tried") for name in ("seccomp", "namespaces", "cgroups")]
    has = {feature.name: feature.available for feature in features}
    level = IsolationLevel.PROCESS
    if has["seccomp"]:
        level = IsolationLevel.SECCOMP
        if has["namespaces"]:
            level = IsolationLevel.CGROUPS if has["cgroups"] else IsolationLevel.NAMESPACES
    return Capabilities(level=level, features=tuple(features), promises=PROMISES[level])


def extras() -> tuple[Feature, ...]:
    """What no isolation level needs: a faster init, and another provider."""
    return (_compiled_init(), _engine())


def _compiled_init() -> Feature:
    """Build it, unless a provider has; what is built here is removed."""
    if (library := compiled.library_path(default_state_dir())).exists():
        return _feature("compiled init", "", detail=str(library))
    scratch = ScratchDir.opened()
    try:
        asyncio.run(compiled.build(scratch.directory))
    except (compiled.BuildFailed, OSError) as error:
        return _feature("compiled init", f"{error}; Python serves in sandboxes, more slowly")
    finally:
        scratch.close()
    return _feature("compiled init", "", detail=f"{compiled.find_compiler()} can build it")


def _engine() -> Feature:
    address = find_engine() or shutil.which("podman") or ""
    if not address:
        return _feature("container engine", "none found")
    if importlib.util.find_spec("docker") is None:
        return _feature("container engine", f"{address}, but the package docker is missing")
    return _feature("container engine", "", detail=address)


def explain(found: Capabilities, lowest: IsolationLevel) -> str:
    """Why `lowest` cannot be had, and how it could."""
    missing = "; ".join(f"{f.name}: {f.detail} ({f.how})" for f in found.missing())
    return (
        f"this machine can isolate sandboxes at level {found.level.name}, but {lowest.name} was "
        f"asked for: {missing}"
    )


def _feature(name: str, problem: str, *, detail: str = "") -> Feature:
    if problem:
        return Feature(name=name, available=False, detail=problem, how=HOW[name])
    return Feature(name=name, available=True, detail=detail)


def _linux() -> Feature:
    here = f"{sys.platform} {os.uname().machine}"
    known = sys.platform == "linux" and bool(linux.NUMBERS)
    return _feature("linux", "" if known else f"this is {here}", detail=here)


def _tried(name: str) -> Feature:
    """Do it in a process of its own: it cannot be undone."""
    stage = ScratchDir.opened()  # Goes even if we are killed meanwhile.
    try:
        done = subprocess.run(
            interpreter(),
            input=program("trial", name, str(stage.directory)),
            capture_output=True,
            timeout=TRY_TIMEOUT_S,
            check=False,
        )
    finally:
        stage.close()
    return _feature(name, "" if done.returncode == 0 else _last_line(done.stderr))


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it failed without a word"


def _cgroups() -> Feature:
    if os.getuid() != 0:
        return _feature("cgroups", "not root")
    try:
        groups = Groups(find_hierarchies(), f"probe-{os.getpid()}")
        try:
            groups.open()
        finally:
            groups.close()
    except OSError as error:
        return _feature("cgroups", str(error))
    freezer = "2" if groups.freezes_v2 else "1"
    version = "2" if groups.is_v2 else "1"
    return _feature("cgroups", "", detail=f"version {version}, freezer of version {freezer}")
