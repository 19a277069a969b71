"""Write docs/reference.md from signatures, docstrings and the command line: run it in a checkout.

    python docs/make_reference.py

A test compares the page with what this makes.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import artangram
from artangram import sync
from artangram.cli.verbs import EXAMPLES, app

PAGE = Path(__file__).with_name("reference.md")
WIDTH = 96
GROUPS = {
    "Clients": "local connect Client TrajectoryHandle ProcessHandle ShellHandle Api RemoteFunction",
    "Options": "TrajectoryOptions RunOptions StartOptions CallOptions ServiceOptions Amount "
    "between one_of",
    "Results": "ActionResult FileStat ShellResult Outcome ActionRecord CommandResult Output "
    "ApiAnswer ClusterStatus Explanation",
    "Images and limits": "HostImage DirectoryImage TarImage EngineImage Snapshot SnapshotInfo "
    "Limits",
    "What a cluster offers": "function Service ApiSpec JobLimits",
    "Errors": "BadInput CallFailed InfraFailed Unreachable Refused Overloaded Draining Broken "
    "SandboxError SandboxGone ShellEnded",
}
AMOUNT = "`int`, or what `between` and `one_of` return."
OPENING = """# Reference

Made by `docs/make_reference.py` from the code; do not edit it.

Every name below is an attribute of `artangram`. `Unpack[RunOptions]` in a signature stands for
the keywords that `RunOptions` lists, all of them optional.
"""
SYNC = """## artangram.sync

The same for code that is not async: `artangram.sync.local` and `artangram.sync.connect` take the
same arguments and return an open `SyncClient`. Its methods have the same names, arguments and
results as those of `Client`, and block.
"""
BENCH = "The benchmarks; they need a checkout. `artangram bench --help` lists them.\n"


def page() -> str:
    """The whole reference."""
    parts = [OPENING, "## Python\n"]
    for title, names in GROUPS.items():
        parts.append(f"### {title}\n")
        for name in names.split():
            parts += _entry(name, getattr(artangram, name))
    parts.append(SYNC)
    for name in ("SyncClient", "SyncTrajectory"):
        parts += _entry(f"sync.{name}", getattr(sync, name))
    parts.append("## Command line\n")
    parts += _verb("artangram", get_command(app()))
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"#### {name}\n"
    if name == "Amount":
        yield f"{AMOUNT}\n"
    elif not inspect.isclass(thing):
        yield _signature(name, thing)
        yield _prose(thing)
    else:
        yield _prose(thing)
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
        assert isinstance(tree, ast.ClassDef)
        fields = list(_fields(tree))
        if fields:
            yield "\n".join(fields) + "\n"
        for method in _methods(thing):
            yield _signature(f"{name.removeprefix('sync.')}.{method.__name__}", method)
            yield _prose(method)


def _prose(thing: Any) -> str:
    return f"{inspect.getdoc(thing)}\n"


def _methods(thing: type) -> Iterator[Any]:
    for name, found in vars(thing).items():
        if inspect.isfunction(found) and (not name.startswith("_") or name == "__call__"):
            yield found


def _fields(tree: ast.ClassDef) -> Iterator[str]:
    """Annotated fields, members of an enum and properties, each with the docstring below it."""
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        said = _text(following) if isinstance(following, ast.Expr) else ""
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                default = f" = {ast.unparse(node.value)}" if node.value else ""
                yield _item(f"{name}: {ast.unparse(node.annotation)}{default}", said)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield _item(f"{name} = {ast.unparse(value)}", said)
            case ast.FunctionDef(name=name) if any(
                isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list
            ):
                returned = ast.unparse(node.returns) if node.returns else ""
                yield _item(f"{name}: {returned}", ast.get_docstring(node) or "")


def _item(head: str, said: str) -> str:
    return f"- `{head}`: {' '.join(said.split())}" if said else f"- `{head}`"


def _text(node: ast.Expr) -> str:
    value = node.value
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _signature(name: str, function: Any) -> str:
    """As a program would write it: annotations from the source, defaults as values."""
    node = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    written = {one.arg: one for one in ast.walk(node.args) if isinstance(one, ast.arg)}
    arguments: list[str] = []
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not any(text.startswith("*") for text in arguments):
            arguments.append("*")
        if one.name != "self":
            arguments.append(_argument(one, written[one.name].annotation))
    returned = _unquoted(node.returns)
    head = "async " if inspect.iscoroutinefunction(function) else ""
    if hasattr(function, "__wrapped__"):
        returned = returned.replace("AsyncIterator[", "AsyncContextManager[")
    line = f"{head}{name}({', '.join(arguments)}) -> {returned}"
    if len(line) > WIDTH:
        inside = "".join(f"    {text},\n" for text in arguments)
        line = f"{head}{name}(\n{inside}) -> {returned}"
    return f"```text\n{line}\n```\n"


def _argument(one: inspect.Parameter, annotation: ast.expr | None) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    default = "" if one.default is one.empty else f" = {one.default!r}"
    return f"{stars}{one.name}: {_unquoted(annotation)}{default}"


def _unquoted(annotation: ast.expr | None) -> str:
    return "None" if annotation is None else ast.unparse(annotation).strip("'")


def _verb(path: str, command: Any) -> Iterator[str]:
    """A verb and those below it."""
    below = getattr(command, "commands", {})
    if path != "artangram":
        yield f"### {path}\n"
        yield f"{inspect.cleandoc(command.help or '')}\n"
        options = [_option(one) for one in command.params if one.name != "help"]
        if options:
            yield "\n".join(options) + "\n"
        examples = EXAMPLES.get(path.removeprefix("artangram "), ())
        if examples:
            yield "```text\n" + "\n".join(f"$ {line}" for line in examples) + "\n```\n"
    for name, one in below.items():
        if name == "bench":
            yield "### artangram bench\n"
            yield BENCH
        else:
            yield from _verb(f"{path} {name}", one)


def _option(one: Any) -> str:
    is_argument = one.param_type_name == "argument"
    names = one.name.upper() if is_argument else ", ".join([*one.opts, *one.secondary_opts])
    said = " ".join((one.help or "").split())
    default = one.default
    if not (default is None or default is False or default == () or callable(default)):
        said += f" Default: {str(default).replace(str(Path.home()), '~')}."
    if one.envvar:
        said += f" Environment: {one.envvar}."
    return _item(names, said)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE}: {len(page().splitlines())} lines")
