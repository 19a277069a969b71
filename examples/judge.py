"""A model service and a function, as small as they can be: short answers are good answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Answers = list[dict[str, float]]


def load(files: list[Path]) -> Callable[[list[dict[str, Any]]], Answers]:
    """The service's loader: it would map the weights in `files`, and this model has none."""
    return lambda payloads: [{"score": shortness(payload["text"])} for payload in payloads]


def shortness(text: str) -> float:
    """1 for an empty text, and half of that for every 100 characters."""
    return float(0.5 ** (len(text) / 100))
