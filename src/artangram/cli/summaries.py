"""The list of verbs that `artangram --help` prints: no verb is imported, so it is there at once."""

import textwrap

from artangram.cli.extras import lacking

SUMMARIES = {
    "demo": "Train a tiny model with real tools, tests, a judge and a search API, in minutes.",
    "train": "Train a model on tasks that use a cluster.",
    "eval": "Measure a model on held-out problems of a run's tasks, one attempt each.",
    "warmup": "Let a model imitate conversations, as a beginning for `train`.",
    "up": "Serve this machine's cluster over HTTP until SIGTERM or Ctrl-C, then drain.",
    "agent": "Join this machine to a cluster, and stay until SIGTERM, Ctrl-C or `artangram drain`.",
    "run": "Run a command in a sandbox and exit with its exit code. Put -- before the command.",
    "status": (
        "Show what a running service does: what is in use, which jobs run, what waits and why."
    ),
    "top": "Watch what a running service does, until Ctrl-C.",
    "use": "Show what every job has used, what it costs, and what static provisioning would cost.",
    "explain": "Show why an action waits, resource by resource, and what would let it start.",
    "history": "Show what happened to an action, from its submission to its end.",
    "cancel": "Stop an action; its caller hears that it was cancelled.",
    "close": "Close every trajectory of a job; what it has waiting or running is cancelled.",
    "drain": (
        "Send a node no new trajectories; it leaves the cluster when the last one there is closed."
    ),
    "snapshots": "List the snapshots that trajectories can start from, or drop some of them.",
    "apply": (
        "Change shares, limits, ceilings and quotas of a running service to those of its file."
    ),
    "simulate": (
        "Replay a trace on a cluster and report action completion times, steps and utilisation."
    ),
    "plan": "Find the smallest cluster on which a trace meets its goals, per policy.",
    "report": "Write one page about runs, journals and simulations, side by side.",
    "doctor": (
        "Check what this machine offers for sandboxes and services, and what is not installed."
    ),
    "trace": "Make traces for the simulator: synthetic ones, or of what ran.",
    "bench": "Measure every figure of the documentation.",
}
"""What each verb does, as its own help begins."""

_HEAD = """\
Usage: artangram [OPTIONS] COMMAND [ARGS]...

Action-level orchestration and disaggregated rollout for agentic RL.

Options:
  --version             Print the version.
  --install-completion  Install completion for the current shell.
  --show-completion     Show completion for the current shell.
  --help                Show this message and exit.

Commands:
"""


def overview(width: int) -> str:
    """All verbs with what they do, in lines of at most `width` characters."""
    indent = 2 + max(map(len, SUMMARIES)) + 2
    lines = [
        textwrap.fill(
            _summary(name, text),
            max(width, indent + 20),
            initial_indent=f"  {name}".ljust(indent),
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )
        for name, text in SUMMARIES.items()
    ]
    end = "\n\nEvery verb has a --help of its own, with examples.\n"
    return _HEAD + "\n".join(lines) + end


def _summary(name: str, text: str) -> str:
    what = lacking(name)
    return text if what is None else f"Not installed. {what}"
