"""The `provider:` of a cluster's file: one, or several side by side."""

from typing import Literal, TypeAlias

from artangram.core.errors import BadInput

ProviderName: TypeAlias = Literal["strongest", "namespace", "container"]
ProviderNames: TypeAlias = ProviderName | tuple[ProviderName, ...]


def providers_of(given: ProviderNames) -> tuple[str, ...]:
    """The names, the usual one first. Raises `BadInput`."""
    names = (given,) if isinstance(given, str) else given
    kinds = {"namespace" if name == "strongest" else name for name in names}
    if not names or len(kinds) != len(names):
        fix = "name each kind once, as in `[namespace, container]`"
        raise BadInput("provider", "names none, or one twice", fix)
    return names
