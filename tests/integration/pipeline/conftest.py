"""What takes seconds to make, and is made once for all."""

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A directory with a small model that speaks the language of `small`."""
    from integration.pipeline import small

    return small.model(tmp_path_factory.mktemp("models"))
