"""Services for tests: one does what its payload says, one has weights."""

import mmap
import os
import time
from pathlib import Path
from typing import Any

_LEFT: list[bytearray] = []
"""What outlives the model that left it."""


def obedient(files: list[Path], *, scale: int = 1) -> "Obedient":
    return Obedient(scale)


def as_obedient(files: list[Path]) -> "Obedient":
    """The same model by another loader."""
    return Obedient(1)


class Obedient:
    """Answers `{"do": what}` by doing it, and a number by its multiple."""

    def __init__(self, scale: int) -> None:
        self._scale = scale
        self._hoard: list[bytearray] = []
        self._maps: list[mmap.mmap] = []

    def predict(self, payloads: list[Any]) -> list[Any]:
        return [self._answer(payload, len(payloads)) for payload in payloads]

    def _answer(self, payload: Any, batch: int) -> Any:
        if not isinstance(payload, dict):
            return payload * self._scale
        match payload["do"]:
            case "raise":
                raise ValueError("as you wished")
            case "die":
                os.kill(os.getpid(), 9)
            case "hang":
                while True:
                    time.sleep(1)
            case "sleep":
                time.sleep(payload["s"])
            case "hoard":
                self._hoard.append(bytearray(payload["mb"] << 20))
            case "leave":
                _LEFT.append(bytearray(payload["mb"] << 20))
            case "map":
                self._maps.append(mapped := mmap.mmap(-1, payload["mb"] << 20))
                mapped[:: mmap.PAGESIZE] = bytes(len(mapped) // mmap.PAGESIZE)
            case "cores":
                return sorted(os.sched_getaffinity(0))
            case "pid":
                return os.getpid()
        return batch


def heavy(files: list[Path]) -> Any:
    """Maps a file of numbers; a payload is a place in it."""
    with files[0].open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    def predict(payloads: list[int]) -> list[int]:
        return [sum(data[:: mmap.PAGESIZE]) and data[place] for place in payloads]

    return predict


def torn(files: list[Path]) -> Any:
    raise RuntimeError("these weights are torn")


def killed(files: list[Path]) -> Any:
    os.kill(os.getpid(), 9)


def greedy(files: list[Path], *, mb: int) -> Any:
    hoard = bytearray(mb << 20)
    return lambda payloads: [len(hoard)] * len(payloads)


def useless(files: list[Path]) -> int:
    return 3


def short(files: list[Path]) -> Any:
    """Forgets the last answer."""
    return lambda payloads: payloads[:-1]


def matrix(files: list[Path]) -> Any:
    """A torch model of a matrix: its answers show which weights it has."""
    import safetensors.torch
    import torch

    weight = safetensors.torch.load_file(files[0])["weight"]

    def predict(payloads: list[list[float]]) -> list[float]:
        with torch.inference_mode():
            return list((torch.tensor(payloads) @ weight.T).sum(dim=1).tolist())

    return predict


IMPORTED_BY = os.getpid()


def noting(files: list[Path], *, path: str) -> Obedient:
    """Writes down whether this process has imported it, or the one it was forked from."""
    is_own = os.getpid() == IMPORTED_BY
    with Path(path).open("a") as notes:
        notes.write("imported\n" if is_own else "inherited\n")
    return obedient(files)


def transformer(files: list[Path]) -> Any:
    """A model of transformers as its users load it, from a directory; logits of the next token."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(files[0].parent)

    def predict(payloads: list[list[int]]) -> list[list[float]]:
        with torch.inference_mode():
            return [model(torch.tensor([ids])).logits[0, -1].tolist() for ids in payloads]

    return predict
