"""What every test of the analysis may ask for."""

import pytest

from tests.analysis.record_factory import leave_unrendered, record, store


@pytest.fixture
def unrendered(monkeypatch):
    """Leave PDF, PNG and SVG of figures empty; to render one takes a second."""
    leave_unrendered(monkeypatch)


@pytest.fixture
def campaign(tmp_path):
    """Return a campaign folder of one storage with four thread counts, medians 100, 190, 350 and 400."""
    rates = {1: (99, 100, 101), 2: (185, 190, 195), 4: (345, 350, 355), 8: (390, 400, 410)}
    return store(tmp_path / "results", *(record(rate, threads=n) for n, rate in rates.items()))
