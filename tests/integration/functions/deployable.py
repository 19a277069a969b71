"""What is put on platforms: the same functions, in the shape each of them wants."""

from typing import Any

from artangram.functions.serve import asgi, lambda_handler, request_handler
from integration.functions import subjects

app = asgi(subjects.add)
handler = lambda_handler(subjects.add)
target = request_handler(subjects.add)
failing = request_handler(subjects.fail)


def broken(event: Any, context: object) -> None:
    raise ValueError("not caught by anybody")
