"""A YAML file whose values know their line and field, so that error messages can name them."""

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError

from artangram.core.errors import BadInput
from artangram.observe.badfile import AnyPath, BadFile, nearest

Spec = TypeVar("Spec", bound=msgspec.Struct)

_BAD_FIELD = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<field>.*)`")


class Item:
    """One value of a YAML file, with its line and field."""

    def __init__(self, path: AnyPath, field: str, node: yaml.Node) -> None:
        self.path = path
        self.field = field
        self._node = node

    def __repr__(self) -> str:
        return f"<Item {self.path}:{self.line}: {self.field}>"

    @property
    def line(self) -> int:
        return int(self._node.start_mark.line) + 1

    def bad(self, problem: str, fix: str, *, key: str = "") -> BadFile:
        """The complaint about this value, or about its missing `key`."""
        return BadFile(self.path, BadInput(_join(self.field, key), problem, fix), line=self.line)

    def mapping(self) -> dict[str, "Item"]:
        """The values by key, in file order."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.bad("is not a mapping", "write {key: value, ...}")
        entries: dict[str, Item] = {}
        for key_node, value_node in self._node.value:
            key = Item(self.path, self.field, key_node).value()
            field = _join(self.field, str(key))
            if not isinstance(key, str) or not key:
                raise Item(self.path, field, key_node).bad("is not a name", "use a word as key")
            if key in entries:
                raise Item(self.path, field, key_node).bad("comes twice", "remove one of them")
            entries[key] = Item(self.path, field, value_node)
        return entries

    def known(self, valid: Iterable[str]) -> dict[str, "Item"]:
        """The values by key; a key that is not among `valid` is an error, never ignored."""
        entries, names = self.mapping(), list(valid)
        for key, entry in entries.items():
            if key not in names:
                raise entry.bad("unknown key", nearest(key, names))
        return entries

    def converted(self, spec: type[Spec], values: dict[str, Any], *, fix: str) -> Spec:
        """`values` of this mapping as a record; a complaint names the field and its line."""
        try:
            return msgspec.convert(values, type=spec)
        except (msgspec.ValidationError, BadInput) as error:
            raise self._complaint(error, fix) from None

    def _complaint(self, error: Exception, fix: str) -> BadFile:
        """The error of a record, attributed to the value that it rejects."""
        found = _BAD_FIELD.fullmatch(str(error))
        field = found["field"].partition("[")[0].partition(".")[0] if found else ""
        place = self.mapping().get(field, self)
        why = error if isinstance(error, BadInput) else error.__cause__
        if isinstance(why, BadInput):
            is_mapping = isinstance(place._node, yaml.MappingNode)
            exact = place.mapping().get(why.field) if is_mapping else None
            if exact is not None:
                return exact.bad(why.problem, why.fix)
            return place.bad(why.problem, why.fix, key=why.field)
        return place.bad(found["problem"].lower() if found else str(error), fix)

    def items(self) -> list["Item"]:
        """The values of a list."""
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.bad("is not a list", "write [1, 2, 4]")
        return [
            Item(self.path, f"{self.field}[{index}]", node)
            for index, node in enumerate(self._node.value)
        ]

    def value(self) -> object:
        """A single value as YAML understands it."""
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.bad("is not a single value", "write one word or number")
        try:
            value: object = SafeConstructor().construct_object(self._node)
        except (yaml.YAMLError, ValueError, AttributeError):  # PyYAML trusts explicit tags
            raise self.bad(f"{self._node.value!r} has no meaning", "write a plain value") from None
        return value

    def plain(self) -> Any:
        """The value with all that is in it, as plain data."""
        try:
            if isinstance(self._node, yaml.MappingNode):
                return {key: item.plain() for key, item in self.mapping().items()}
            if isinstance(self._node, yaml.SequenceNode):
                return [item.plain() for item in self.items()]
        except RecursionError:
            raise Item(self.path, "yaml", self._node).bad(
                "a value holds itself", "write it out"
            ) from None
        return self.value()

    def text(self) -> str:
        value = self.value()
        if not isinstance(value, str) or not value:
            raise self.bad(f"{value!r} is not a name", "give a name")
        return value

    def number(self) -> float:
        """A finite number; an `int` if it is written as one."""
        value = self.value()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(f"{value!r} is not a number", _as_number(value))
        try:
            is_finite = math.isfinite(value)
        except OverflowError:
            is_finite = False
        if not is_finite:
            raise self.bad(f"{str(value)[:20]} is not a finite number", "give a number")
        return value


def _as_number(value: object) -> str:
    """How to write a number that YAML takes for a word, such as `"12"` or `1e3`."""
    try:
        number = float(str(value))
    except ValueError:
        number = math.inf
    if not math.isfinite(number):
        return "give a number"
    digits, e, power = f"{number:.12g}".partition("e")
    return f"write {digits}.0e{power}" if e and "." not in digits else f"write {digits}{e}{power}"


def read_yaml(path: AnyPath) -> Item:
    """The one document of a file. Raises `BadFile`."""
    return parse_yaml(_text(path), path=path)


def parse_yaml(text: str, *, path: AnyPath) -> Item:
    """The one document of `text`, which is or will be the file at `path`. Raises `BadFile`."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        complaint = BadInput("yaml", f"character #x{error.character:04x}", "remove it")
        raise BadFile(path, complaint, line=line) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _not_yaml(path, error) from None
    if node is None:
        raise BadFile(path, BadInput("file", "it is empty", "write what it should describe"))
    return Item(path, "", node)


def _text(path: AnyPath) -> str:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadFile(path, BadInput("file", why, "name a readable YAML file")) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        complaint = BadInput("file", "is not UTF-8 text", "save it as UTF-8")
        raise BadFile(path, complaint, line=line) from None


def _not_yaml(path: AnyPath, error: Exception) -> BadFile:
    mark = getattr(error, "problem_mark", None)
    why = getattr(error, "problem", None) or str(error)
    line = mark.line + 1 if mark is not None else 0
    complaint = BadInput("yaml", why, "check indentation, brackets and colons")
    return BadFile(path, complaint, line=line)


def _join(field: str, key: str) -> str:
    return ".".join(part for part in (field, key) if part)
