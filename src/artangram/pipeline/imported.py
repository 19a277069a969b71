"""Functions of the user by `module:name`.

A module of the user's may raise anything while it is imported; that is bad input, said in a line.
"""

from collections.abc import Callable
from importlib import import_module
from traceback import extract_tb
from typing import Any, cast

from artangram.core.errors import BadInput


def imported(named: str, *, field: str, fix: str) -> Callable[..., Any]:
    """What `module:name` names. Raises `BadInput` about `field`."""
    module, _, attribute = named.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # Code of the user runs here.
        raise BadInput(field, f"{named!r}: {_said(error)}", fix) from error
    if not callable(found):
        raise BadInput(field, f"{named!r} makes nothing: it cannot be called", fix)
    return cast(Callable[..., Any], found)


def _said(error: Exception) -> str:
    """What an import says; what only a module can have raised, with the place where it did."""
    if isinstance(error, ImportError | AttributeError):
        return str(error)
    last = extract_tb(error.__traceback__)[-1]
    place = "" if isinstance(error, SyntaxError) else f" ({last.filename}:{last.lineno})"
    return f"{type(error).__name__}: {error}{place}"
