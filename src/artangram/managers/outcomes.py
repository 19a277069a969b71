"""How a command ended, in the scheduler's words."""

from artangram.core.scheduling.records import Outcome
from artangram.sandbox.protocol import Command, CommandResult


def how_it_ended(
    command: Command, result: CommandResult, *, limit_s: float | None
) -> tuple[Outcome, str]:
    """The outcome of `command`, and why; `limit_s` is its time limit if its agent counts that."""
    if result.timed_out:
        return Outcome.TIMED_OUT, f"it ran longer than {limit_s or command.timeout_s:g} s"
    outcome = Outcome.SUCCEEDED if result.exit_code == 0 else Outcome.FAILED
    if result.out_of_memory:
        return outcome, "it ran out of memory"
    if result.start_error:
        return outcome, f"{command.argv[0]}: {result.start_error}"
    if result.signal:
        return outcome, f"signal {result.signal} ended it"
    return outcome, "" if result.exit_code == 0 else f"exit code {result.exit_code}"
