from __future__ import annotations

import pytest

from campaign.testbed import apply
from tests.campaign.testbed.testbeds import measure_briefly, required


@pytest.fixture
def measured_bed(tmp_path):
    """A folder for a testbed whose costs are measured as a user's are; whatever is in it is taken away."""
    required()
    folder = tmp_path / "bed"
    yield folder
    if folder.exists():
        apply.take_down(folder)


@pytest.fixture
def bed(measured_bed, monkeypatch):
    """A folder for a testbed whose costs are measured in one short window: three quarters of `up` are that."""
    measure_briefly(monkeypatch.setattr)
    return measured_bed
