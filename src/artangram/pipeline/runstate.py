"""What a checkpoint of a run holds beside the trainer's own files."""

from pathlib import Path

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.pipeline.settings import RunSettings
from artangram.rollout import RolloutState
from artangram.train import checkpoint

STATE_NAME = "run.msgpack"


class RunState(Struct, frozen=True, kw_only=True):
    """A moment of a run."""

    settings: RunSettings
    step: int
    rollout: RolloutState
    cluster_ended: int = 0
    """Actions of all jobs that had ended in the cluster."""


def write_state(state: RunState, directory: Path) -> None:
    (directory / STATE_NAME).write_bytes(msgspec.msgpack.encode(state))


def saved_state(settings: RunSettings, out: Path) -> RunState:
    """That of the newest checkpoint. Raises `BadInput`."""
    newest = checkpoint.latest(out / "checkpoints")
    try:
        state = msgspec.msgpack.decode((newest / STATE_NAME).read_bytes(), type=RunState)
    except (OSError, msgspec.MsgspecError) as error:
        fix = f"remove {newest} to resume from the one before"
        raise BadInput(str(newest), f"cannot be read: {error}", fix) from error
    if state.settings.seed != settings.seed or state.settings.name != settings.name:
        problem = f"belongs to {state.settings.name!r} with seed {state.settings.seed}"
        raise BadInput(str(newest), problem, "resume with the same name and seed")
    return state
