from __future__ import annotations

import lab as laboratory
import pytest


@pytest.fixture(scope="session")
def lab():
    """A cluster of four nodes; skipped with the reason where there can be none."""
    reason = laboratory.missing()
    if reason:
        pytest.skip(reason)
    with laboratory.lab(nodes=4, cpus=2) as cluster:
        yield cluster
