from __future__ import annotations

import pytest

from campaign.testbed import apply
from tests.campaign.testbed.testbeds import required


@pytest.fixture
def bed(tmp_path):
    """A folder for a testbed; whatever is in it is taken away."""
    required()
    folder = tmp_path / "bed"
    yield folder
    if folder.exists():
        apply.down(folder)
