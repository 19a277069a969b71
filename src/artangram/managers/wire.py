"""What a node agent and its orchestrator say to each other over a socket.

A frame is its length (four bytes, big-endian) and a msgpack record. Tells have no number; an ask
has one, and exactly one `AgentAnswer` or `AgentRefusal` carries it back. Times never travel,
lengths do: the two ends need not share a clock.
"""

import asyncio

import msgspec
from msgspec import Struct

from artangram.core.ids import ActionId, TrajectoryId
from artangram.managers.agent import AgentGone, NodeInventory, Population, Run, RunId, RunResult
from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.protocol import MAX_READ_BYTES, Output, Snapshot

MOST_OUTPUT_BYTES = MAX_READ_BYTES
"""What a run may print on one of its two channels; more of it is cut off."""

MOST_BYTES = 2 * MOST_OUTPUT_BYTES + (1 << 20)
"""No frame is longer; a longer one is not ours. A run that printed all it may fits."""


class StartRun(Struct, frozen=True, tag="start"):
    run: Run


class ResizeRun(Struct, frozen=True, tag="resize"):
    action_id: ActionId
    cores: tuple[int, ...]
    pace: float = 1.0


class StopRun(Struct, frozen=True, tag="stop"):
    action_id: ActionId


class Acknowledge(Struct, frozen=True, tag="acknowledge"):
    run: RunId


class Attach(Struct, frozen=True, tag="attach"):
    number: int


class PingAgent(Struct, frozen=True, tag="ping"):
    number: int


class ReadFile(Struct, frozen=True, tag="read"):
    number: int
    trajectory: TrajectoryId
    path: str
    max_bytes: int


class WriteFile(Struct, frozen=True, tag="write"):
    number: int
    trajectory: TrajectoryId
    path: str
    data: bytes


class TakeSnapshot(Struct, frozen=True, tag="snapshot"):
    number: int
    trajectory: TrajectoryId


class ForgetSnapshot(Struct, frozen=True, tag="forget"):
    number: int
    snapshot: Snapshot


class CloseTrajectory(Struct, frozen=True, tag="close"):
    number: int
    trajectory: TrajectoryId


class LeaveAgent(Struct, frozen=True, tag="leave"):
    """The orchestrator is done: end everything and exit. Its answer is the last."""

    number: int


Tell = StartRun | ResizeRun | StopRun | Acknowledge
Files = ReadFile | WriteFile | TakeSnapshot | ForgetSnapshot | CloseTrajectory
Ask = PingAgent | Files
Request = Tell | Ask | Attach | LeaveAgent


class AgentAnswer(Struct, frozen=True, tag="answer"):
    number: int
    value: NodeInventory | Population | Snapshot | bytes | None = None


class AgentRefusal(Struct, frozen=True, tag="refusal"):
    """What the agent raised."""

    number: int
    kind: str
    text: str
    errno: int = 0
    path: str = ""
    """Of the file that an `OSError` is about."""


class EndFound(Struct, frozen=True, tag="found"):
    """An end that nobody has acknowledged: as many as there are come before `Attach` is answered.

    Each travels by itself, for together they may be longer than any frame.
    """

    ended: RunResult


class RunEnded(Struct, frozen=True, tag="ended"):
    """`ended.began_at` is replaced by how long ago that was when the run ended."""

    ended: RunResult
    run_s: float | None


class RunPrinted(Struct, frozen=True, tag="printed"):
    run: RunId
    output: Output


Response = AgentAnswer | AgentRefusal | EndFound | RunEnded | RunPrinted


def refusal(number: int, error: Exception) -> AgentRefusal:
    """`error` as it travels."""
    if isinstance(error, OSError):
        text, path = str(error.strerror or error), str(error.filename or "")
        return AgentRefusal(number, "os", text, error.errno or 0, path)
    kind = "gone" if isinstance(error, SandboxGone) else "sandbox"
    return AgentRefusal(number, "value" if isinstance(error, ValueError) else kind, str(error))


def raised(refusal: AgentRefusal) -> Exception:
    """The error that travelled."""
    match refusal.kind:
        case "os":
            return OSError(refusal.errno, refusal.text, refusal.path or None)
        case "value":
            return ValueError(refusal.text)
        case "gone":
            return SandboxGone(refusal.text)
    return SandboxError(refusal.text)


def frame(message: Request | Response) -> bytes:
    """As it travels. `ValueError` if it cannot: it is too long, or has text that is none."""
    body = msgspec.msgpack.encode(message)
    if len(body) > MOST_BYTES:
        most = f"an agent takes and gives {MOST_BYTES} at once"
        raise ValueError(f"{len(body)} bytes are too many; {most}")
    return len(body).to_bytes(4, "big") + body


async def next_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next frame; `None` at the end of the connection."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > MOST_BYTES:
            raise AgentGone(f"a frame of {size} bytes is not ours")
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
