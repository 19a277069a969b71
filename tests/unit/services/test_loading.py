"""What the process of a model makes of what the model does."""

from typing import Any

import msgspec

from artangram.services.devices import PredictFailed
from artangram.services.loading import answers


def test_words_that_are_no_unicode_fail_their_payload_and_not_the_process() -> None:
    def predict(payloads: list[Any]) -> list[Any]:
        raise ValueError("caf\udce9")

    (failed,) = answers(predict, [b"1"])
    assert isinstance(failed, PredictFailed)
    assert b"ValueError: caf?" in msgspec.msgpack.encode(failed)
