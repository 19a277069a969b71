"""The kind of a command from what it runs: `sh -c 'cd repo && pytest -x'` is `pytest`.

Actions of one kind are expected to take about as long as each other, so the word `sh` says nothing.
A kind is the name of the program, with its subcommand where it has one (`git/status`). Of a script,
it is that of the last pipeline that does any work, since what comes before usually prepares it.
"""

import shlex
from collections.abc import Iterator, Sequence
from os.path import basename

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh"})
_PYTHONS = ("python", "pypy")
_WRAPPERS = frozenset(
    {"env", "timeout", "nice", "nohup", "sudo", "time", "stdbuf", "setsid", "exec", "command"}
)
"""Programs that run the program named after their own options."""

_RUNNERS = {"uv": "run", "poetry": "run", "pipenv": "run", "hatch": "run", "rye": "run"}
"""The same with a subcommand in between."""

_WITH_SUBCOMMAND = frozenset(
    {
        *(
            "git",
            "cargo",
            "go",
            "npm",
            "yarn",
            "pnpm",
            "npx",
            "make",
            "pip",
            "pip3",
            "uv",
            "poetry",
        ),
        *("docker", "podman", "kubectl", "apt", "apt-get", "conda", "dotnet", "mvn", "gradle"),
        *("cmake", "bazel", "tox", "nox", "hg", "svn", "gh", "systemctl", "bundle", "rake", "mix"),
    }
)
_TRIVIAL = frozenset(
    {"cd", "export", "set", "source", ".", "true", ":", "echo", "printf", "umask", "ulimit", "exit"}
)
"""Commands of a shell that take no time: they prepare what follows, or say how it went."""

_ENDS = frozenset({"&&", "||", ";", "&", ";;", "\n"})
_MOST_WORDS = 512
"""Words of a script that are looked at."""

_MOST_LETTERS = 40


def command_kind(argv: Sequence[str]) -> str:
    """What `argv` runs; empty if it names no program."""
    words = _unwrapped([str(word) for word in argv])
    if not words:
        return ""
    program = basename(words[0])[:_MOST_LETTERS]
    if program in _SHELLS:
        return _of_script(words) or program
    if program.startswith(_PYTHONS):
        return _of_python(words)
    rest = [word for word in words[1:] if not word.startswith("-")]
    if program in _WITH_SUBCOMMAND and rest:
        return f"{program}/{rest[0][:_MOST_LETTERS]}"
    return program


def _unwrapped(words: list[str]) -> list[str]:
    """Without assignments and programs that only run another one."""
    while words:
        program = basename(words[0])
        if "=" in words[0] and not words[0].startswith(("=", "/", "-")):
            words = words[1:]
        elif program in _WRAPPERS and len(words) > 1:
            words = _after_options(words[1:])
        elif words[1:2] == [_RUNNERS.get(program, "")] and len(words) > 2:
            words = _after_options(words[2:])
        else:
            break
    return words


def _after_options(words: list[str]) -> list[str]:
    """From the first word on that may be a program: no option, and no number."""
    for index, word in enumerate(words):
        is_number = word.rstrip("smhd").replace(".", "", 1).isdigit()
        if not word.startswith("-") and not is_number:
            return words[index:]
    return []


def _of_python(words: list[str]) -> str:
    """`python -m pytest` is pytest, `python tools/run.py` is python/run.py."""
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        if rest[0] == "-m" and len(rest) > 1:
            return command_kind(rest[1:])
        if rest[0] == "-c":
            return "python"
        rest = rest[1:]
    return f"python/{basename(rest[0])[:_MOST_LETTERS]}" if rest else "python"


def _of_script(words: list[str]) -> str:
    """The kind of what a shell is told to run, or the name of the file it reads."""
    for index, word in enumerate(words[1:], start=1):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            script = words[index + 1] if index + 1 < len(words) else ""
            kinds = [command_kind(pipeline) for pipeline in _pipelines(script)]
            return kinds[-1] if kinds else ""
        if not word.startswith("-"):
            return basename(word)[:_MOST_LETTERS]
    return ""


def _pipelines(script: str) -> Iterator[list[str]]:
    """The first command of every pipeline in `script` that does any work."""
    lexer = shlex.shlex(script.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    pipeline: list[str] = []
    is_first = True
    for count, word in enumerate(_words(lexer)):
        if word in _ENDS or count >= _MOST_WORDS:
            if pipeline and pipeline[0] not in _TRIVIAL:
                yield pipeline
            pipeline, is_first = [], True
        elif word in ("|", "|&"):
            is_first = False
        elif is_first and word.strip("()<>&"):
            pipeline.append(word)
    if pipeline and pipeline[0] not in _TRIVIAL:
        yield pipeline


def _words(lexer: shlex.shlex) -> Iterator[str]:
    """What can be read of a script; one with an open quotation ends there."""
    try:
        yield from lexer
    except ValueError:
        return
