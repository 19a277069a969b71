"""Inside a replica: from the name of a loader to a model that answers batches.

What is wrong with a loader is a `BadInput` that names the field of the service. What is wrong with
one payload is the answer to that payload; its neighbours in the batch do not notice. A model that
knows which payload failed may give the exception as the answer to it.
"""

import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from artangram.core.errors import BadInput, InfraFailed
from artangram.services.devices import Answer, Answered, PredictFailed

Predict = Callable[[list[Any]], list[Any]]


def imported(loader: str) -> tuple[Callable[..., Any], bool]:
    """The function named by `loader`, and whether importing it left this process forkable."""
    module, _, name = loader.partition(":")
    before = _num_threads()
    try:
        found: Any = import_module(module)
    except Exception as error:
        fix = "see that it can be imported where the node runs"
        raise BadInput("loader", f"{module} cannot be imported: {_told(error)}", fix) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadInput("loader", f"{module} has no function {name}", "correct the name")
    return found, _num_threads() <= before


def loaded(
    loader: Callable[..., Any], files: Sequence[str], *, options: dict[str, Any], device: str
) -> Predict:
    """Call the loader. The model answers on `device`."""
    paths = [Path(name) for name in files]
    try:
        inspect.signature(loader).bind(paths, **options)
    except TypeError as error:
        fix = "options are the loader's keyword arguments after the files"
        raise BadInput("options", f"do not fit the loader: {error}", fix) from None
    try:
        model = loader(paths, **options)
    except (MemoryError, BadInput):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        fix = "call it by itself with the same options to see why"
        raise BadInput("loader", f"raised {_told(error)}", fix) from error
    if device != "cpu" and hasattr(model, "to"):
        model = model.to(device) or model
    predict = getattr(model, "predict", model)
    if not callable(predict):
        problem = f"gave a {type(model).__name__} that does not predict"
        raise BadInput("loader", problem, "return a function, or an object with predict(payloads)")
    return predict  # type: ignore[no-any-return]


def answers(predict: Predict, items: list[bytes]) -> list[Answer]:
    """Answer `items` together; if the model raises, one by one. `MemoryError` passes."""
    try:
        return _answered(predict([msgspec.json.decode(item) for item in items]), len(items))
    except MemoryError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        if len(items) == 1:
            return [_failed(error)]
    return [answer for item in items for answer in answers(predict, [item])]


def _answered(found: Any, count: int) -> list[Answer]:
    found = list(found)
    if len(found) != count:
        raise ValueError(f"predict gave {len(found)} answers to {count} payloads")
    return [
        _failed(answer) if isinstance(answer, Exception) else Answered(msgspec.json.encode(answer))
        for answer in found
    ]


def _failed(error: Exception) -> PredictFailed:
    if isinstance(error, InfraFailed):
        return PredictFailed(str(error), is_infra=True)
    return PredictFailed(_told(error))


def is_out_of_memory(error: BaseException) -> bool:
    """Torch says it in its own ways."""
    text = str(error)
    is_cuda = type(error).__name__ == "OutOfMemoryError"
    return is_cuda or isinstance(error, MemoryError) or "can't allocate memory" in text


def _told(error: BaseException) -> str:
    """What was raised, and where, in words that can be sent."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename != __file__]
    where = f" ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}: {error}{where}".encode(errors="replace").decode()


def _num_threads() -> int:
    """Of this process, those no Python knows of included."""
    if sys.platform != "linux":
        return threading.active_count()
    return sum(1 for _ in Path("/proc/self/task").iterdir())
