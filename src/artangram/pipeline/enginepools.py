"""The engines that a run samples with, as pools by hardware class, and which task goes where."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from artangram.core.errors import BadInput
from artangram.core.rollout.affinity import ANY, DEFAULT, Auto, Declared, affinity_of
from artangram.core.rollout.split import PrefillDecode, Splits, splits_of


class EnginePool(Struct, frozen=True, kw_only=True):
    """Engines on hardware of one class."""

    count: int = 1
    """Number of our own engines, or of vLLM servers to start."""
    slots: int = 64
    """Requests that one of them samples side by side."""
    vllm: tuple[str, ...] = ()
    """The Python of an environment with vLLM, whose servers are the engines then, and options for
    their command lines; without it the engines are our own."""
    devices: tuple[str, ...] = ()
    """The GPUs of each vLLM server, as `CUDA_VISIBLE_DEVICES` has them; a server for each entry."""
    kv_connector: str = ""
    """The vLLM connector by which servers prefill for each other (`split`): `NixlConnector`."""
    structured_output: bool = False
    """vLLM servers can hold answers to a JSON schema; transformers must know the tokenizer."""
    urls: tuple[str, ...] = ()
    """Of vLLM servers that run already, and can read the files of this machine."""

    def __post_init__(self) -> None:
        for name in ("count", "slots"):
            if getattr(self, name) < 1:
                raise BadInput(name, f"{getattr(self, name)} is too few", "say 1 or more")
        if self.urls and (self.vllm or self.devices):
            raise BadInput("urls", "name servers that already run", "leave out vllm and devices")
        if self.devices and not self.vllm:
            raise BadInput("devices", "are for vLLM servers", "say vllm, too, or leave them out")

    @property
    def size(self) -> int:
        """How many engines there are."""
        return len(self.urls) or len(self.devices) or self.count


class EnginesSpec(Struct, frozen=True, kw_only=True):
    """All engines of a run."""

    pools: Mapping[str, EnginePool] = field(default_factory=lambda: {DEFAULT: EnginePool()})
    """By the name of their hardware class, which is any name."""
    affinity: str | Mapping[str, str | Sequence[str]] = "auto"
    """Which task goes to which class: `auto` learns it; see `core.affinity.affinity_of`."""
    split: str | Mapping[str, Any] = {}
    """Which tasks are read by one class and written by another; see `core.split.splits_of`."""

    def __post_init__(self) -> None:
        if not self.pools:
            raise BadInput("pools", "is empty", "name at least one")
        if isinstance(self.routing, Declared):
            for task, classes in self.routing.tasks.items():
                self._check_known(f"affinity.{task}", classes)
        for task, rule in self.splits.tasks.items():
            if isinstance(rule, PrefillDecode):
                self._check_known(f"split.{task}", (rule.prefill, rule.decode))

    @property
    def routing(self) -> Declared | Auto:
        return affinity_of(self.affinity)

    @property
    def splits(self) -> Splits:
        return splits_of(self.split)

    def _check_known(self, key: str, classes: Sequence[str]) -> None:
        for name in classes:
            if name != ANY and name not in self.pools:
                problem = f"{name!r} is not a hardware class of these engines"
                raise BadInput(key, problem, f"say one of {', '.join(self.pools)}")
