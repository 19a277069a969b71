"""Errors on their way: a tag and fields, rebuilt as the same type on the other side.

- A registry knows how each type gives its fields and is made of them again. A subclass that is not
  registered travels as its nearest ancestor that is.
- Packing never fails: a type that is unknown arrives as `PeerFailed`, and text that is not Unicode
  arrives with escapes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from os import fsdecode
from typing import Any

from msgspec import Struct

from artangram.core.errors import BadInput, CallFailed, InfraFailed
from artangram.link.errors import PeerFailed

Fields = dict[str, str | int]


class Fault(Struct, frozen=True):
    """An error as it travels."""

    tag: str
    fields: Fields


class FaultKind(Struct, frozen=True):
    """How one type of error travels."""

    tag: str
    type: type[Exception]
    fields_of: Callable[[Any], Fields]
    made_of: Callable[..., Exception]
    """Takes the fields by name."""


def worded(tag: str, type: type[Exception]) -> FaultKind:
    """A type of error that is made of one message."""
    return FaultKind(tag, type, lambda error: {"message": str(error)}, partial(_of_message, type))


def _of_message(type: type[Exception], *, message: str) -> Exception:
    return type(message)


def _fields_of_os_error(error: OSError) -> Fields:
    fields: Fields = {"problem": error.strerror or str(error)}
    if error.errno is not None:
        fields["errno"] = error.errno
    for name in ("filename", "filename2"):
        if (path := getattr(error, name)) is not None:
            fields[name] = fsdecode(path) if isinstance(path, bytes) else str(path)
    return fields


def _os_error(
    *,
    problem: str,
    errno: int | None = None,
    filename: str | None = None,
    filename2: str | None = None,
) -> OSError:
    if errno is None:
        return OSError(problem)
    return OSError(errno, problem, filename, None, filename2)


def _timeout(*, problem: str, **fields: Any) -> OSError:
    return _os_error(problem=problem, **fields) if fields else TimeoutError(problem)


_KINDS = (
    FaultKind(
        "input",
        BadInput,
        lambda error: {"field": error.field, "problem": error.problem, "fix": error.fix},
        BadInput,
    ),
    FaultKind("file", OSError, _fields_of_os_error, _os_error),
    FaultKind("timeout", TimeoutError, _fields_of_os_error, _timeout),
    worded("memory", MemoryError),
    worded("value", ValueError),
    worded("call", CallFailed),
    worded("infra", InfraFailed),
    worded("failed", PeerFailed),
)


class Faults:
    """A registry of error types. Both sides of a link use the same one."""

    def __init__(self, kinds: tuple[FaultKind, ...] = _KINDS) -> None:
        self._kinds = kinds
        self._of_type: Mapping[type, FaultKind] = {kind.type: kind for kind in kinds}
        self._of_tag: Mapping[str, FaultKind] = {kind.tag: kind for kind in kinds}
        assert len(self._of_type) == len(self._of_tag) == len(kinds), "a tag or type is there twice"

    def with_kinds(self, *kinds: FaultKind) -> "Faults":
        """This registry and `kinds`."""
        return Faults((*self._kinds, *kinds))

    def fault(self, error: Exception) -> Fault:
        """`error` as it travels."""
        for type in error.__class__.__mro__:
            if (kind := self._of_type.get(type)) is not None:
                return Fault(kind.tag, {k: _sound(v) for k, v in kind.fields_of(error).items()})
        return Fault("failed", {"message": _sound(f"{error.__class__.__name__}: {error}")})

    def raised(self, fault: Fault) -> Exception:
        """The error that travelled."""
        kind = self._of_tag.get(fault.tag)
        if kind is None:
            return PeerFailed(f"{fault.tag}: {fault.fields}")
        try:
            return kind.made_of(**fault.fields)
        except TypeError:
            return PeerFailed(f"{fault.tag} came with the fields {fault.fields}")


def _sound(value: Any) -> Any:
    """Text that UTF-8 can carry."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


FAULTS = Faults()
"""What every link knows."""
