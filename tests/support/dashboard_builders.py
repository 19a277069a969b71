"""What tests of the dashboard share."""

from pathlib import Path

import pytest
from browser import PROGRAM

AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
EVIL = "<img src=x onerror=alert(1)>\"'</script><script>window.owned=1</script>"
in_chromium = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium: sh tests/install_engine.sh browser brings one"
)
