"""What can go wrong with the place itself, never with the program that ran in it.

- A command that fails, is killed or runs out of time is a `CommandResult`, not an exception.
- A path that cannot be read or written inside a sandbox is an `OSError` with its errno.
- Everything here means infrastructure: the action may be repeated, no reward may be drawn from it.
"""

from __future__ import annotations


class SandboxError(Exception):
    """The sandbox, not the program in it, failed."""


class SandboxGone(SandboxError):
    """The sandbox ended, by `close`, by its provider's end or by accident."""


class CreateFailed(SandboxError):
    """A sandbox could not be made; the message names the step that failed."""


class NotCapable(SandboxError):
    """This machine cannot give what was asked; the message says how to get it."""


class ImageError(SandboxError):
    """The image is missing, damaged or of a kind that is not understood."""
