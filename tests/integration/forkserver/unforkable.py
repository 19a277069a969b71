"""A module that makes every later fork of the process that imports it fail."""

import os


def _refuse() -> int:
    raise OSError(11, "Resource temporarily unavailable")


os.fork = _refuse
